//! The server at a glance, as a page: counts, the latest tasks, pools and runners of a namespace. Plain HTML that is made
//! anew every few seconds, without a script and without anything from outside.

use std::fmt::Write as _;

use ekiden::store::Counts;
use ekiden::{QueueInfo, TaskRecord};
use ekiden_core::id::{Kind, Namespace, PoolName};
use ekiden_core::reason::Language;
use ekiden_core::record::Pool;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;

/// Five seconds between two looks: enough to see things move, and no load.
const REFRESH_SECONDS: u32 = 5;

/// How the page looks.
pub(crate) const STYLE: &str = include_str!("overview.css");

/// What the page shows.
pub(crate) struct Overview {
    pub(crate) language: Language,
    pub(crate) now: Timestamp,
    pub(crate) info: QueueInfo,
    /// Those that the caller may see.
    pub(crate) namespaces: Vec<Namespace>,
    /// The one that is shown; `None` where there is none yet.
    pub(crate) chosen: Option<Chosen>,
}

/// A namespace at a glance.
pub(crate) struct Chosen {
    pub(crate) namespace: Namespace,
    pub(crate) counts: Counts,
    pub(crate) tasks: Vec<TaskRecord>,
    pub(crate) pools: Vec<Pool>,
    pub(crate) runners: Vec<Runner>,
}

/// Text that became part of a page. Whatever people put into tasks goes through here.
struct Safe<'a>(&'a str);

impl std::fmt::Display for Safe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

impl Overview {
    /// The page.
    pub(crate) fn page(&self) -> String {
        let lang = self.pick("en", "ja");
        let mut html = String::with_capacity(16 * 1024);
        // Writing to text cannot fail, here and below.
        let _ = write!(
            html,
            "<!doctype html>\n<html lang=\"{lang}\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\">\n<title>Ekiden</title>\n\
             <link rel=\"stylesheet\" href=\"/style.css\">\n\
             <header><h1>Ekiden <span>駅伝</span></h1><p>{} · {} {}</p></header>\n<main>\n",
            env!("CARGO_PKG_VERSION"),
            self.pick("store", "ストア"),
            Safe(&self.info.store),
        );
        self.choice(&mut html);
        match &self.chosen {
            Some(chosen) => self.namespace(&mut html, chosen),
            None => {
                let _ = writeln!(html, "<p class=\"none\">{}</p>", self.nothing());
            }
        }
        let _ = write!(
            html,
            "</main>\n<footer><a href=\"/docs\">API</a> · <a href=\"/openapi.json\">OpenAPI</a> · {}</footer>\n</html>\n",
            self.pick("refreshed every 5 seconds", "5秒ごとに更新します")
        );
        html
    }

    fn namespace(&self, html: &mut String, chosen: &Chosen) {
        html.push_str("<dl>\n");
        for (phase, count) in &chosen.counts.by_phase {
            let quiet = if *count == 0 { " zero" } else { "" };
            let class = phase.as_str();
            let _ = writeln!(html, "<div class=\"{class}{quiet}\"><dt>{}<dd>{count}</div>", phase.word(self.language));
        }
        html.push_str("</dl>\n");
        self.tasks(html, chosen);
        self.runners(html, chosen);
        self.pools(html, chosen);
    }

    /// Links to the other namespaces.
    fn choice(&self, html: &mut String) {
        if self.namespaces.len() < 2 {
            return;
        }
        let _ = write!(html, "<nav aria-label=\"{}\">", self.pick("Namespaces", "名前空間"));
        for namespace in &self.namespaces {
            let is_here = self.chosen.as_ref().is_some_and(|chosen| chosen.namespace == *namespace);
            let here = if is_here { " aria-current=\"page\"" } else { "" };
            let name = namespace.as_str();
            let _ = write!(html, "<a href=\"/?namespace={}\"{here}>{}</a> ", encoded(name), Safe(name));
        }
        html.push_str("</nav>\n");
    }

    fn tasks(&self, html: &mut String, chosen: &Chosen) {
        let titles = match self.language {
            Language::En => ["Task", "Type", "State", "Attempt", "Pool", "Changed", "Note"],
            Language::Ja => ["タスク", "種類", "状態", "試行", "プール", "更新", "メモ"],
        };
        self.begin_table(html, self.pick("Latest tasks", "最近のタスク"), &titles, chosen.tasks.len());
        for task in &chosen.tasks {
            let question = task.question.as_ref().map(|question| &*question.text);
            let error = task.last_error.as_deref().filter(|_| task.state != Phase::Succeeded);
            let note = question.or(error).or(task.title.as_deref()).unwrap_or_default();
            let _ = writeln!(
                html,
                "<tr><td><code>{}</code><td>{}<td class=\"{}\">{}<td>{}/{}<td>{}<td>{}<td>{}",
                Safe(task.id.as_str()),
                Safe(task.envelope.task_type.as_str()),
                task.state.as_str(),
                task.state.word(self.language),
                task.attempts,
                task.max_attempts,
                Safe(task.pool.as_str()),
                self.ago(task.updated_at),
                Safe(note),
            );
        }
        end_table(html, chosen.tasks.len());
    }

    fn runners(&self, html: &mut String, chosen: &Chosen) {
        let titles = match self.language {
            Language::En => ["Runner", "State", "Last sign of life", "Pools", "Types"],
            Language::Ja => ["ランナー", "状態", "最後の応答", "プール", "種類"],
        };
        self.begin_table(html, self.pick("Runners", "ランナー"), &titles, chosen.runners.len());
        for runner in &chosen.runners {
            let (class, state) = match runner.status {
                RunnerStatus::Running if runner.is_alive(self.now) => ("succeeded", self.pick("alive", "稼働中")),
                RunnerStatus::Running | RunnerStatus::Stopped => ("cancelled", self.pick("stopped", "停止")),
                RunnerStatus::Dead { .. } => ("dead", self.pick("dead", "消失")),
            };
            let pools = joined(runner.pools.iter().map(PoolName::as_str));
            let kinds = joined(runner.kinds.iter().map(Kind::as_str));
            let _ = writeln!(
                html,
                "<tr><td><code>{}</code><td class=\"{class}\">{state}<td>{}<td>{}<td>{}",
                Safe(runner.id.as_str()),
                self.ago(runner.last_heartbeat),
                Safe(&pools),
                Safe(&kinds),
            );
        }
        end_table(html, chosen.runners.len());
    }

    fn pools(&self, html: &mut String, chosen: &Chosen) {
        if chosen.pools.is_empty() {
            return;
        }
        let titles = match self.language {
            Language::En => ["Pool", "State", "Running at most", "Attempts"],
            Language::Ja => ["プール", "状態", "同時実行の上限", "試行"],
        };
        self.begin_table(html, self.pick("Pools with settings", "設定のあるプール"), &titles, chosen.pools.len());
        for Pool { name, settings, newer: _ } in &chosen.pools {
            let (class, state) = if settings.paused {
                ("needs_input", self.pick("paused", "一時停止中"))
            } else {
                ("succeeded", self.pick("open", "受付中"))
            };
            let most = settings.running_max.map_or_else(|| "–".to_owned(), |most| most.to_string());
            let attempts = settings.policy.attempts_max;
            let name = Safe(name.as_str());
            let _ = writeln!(html, "<tr><td>{name}<td class=\"{class}\">{state}<td>{most}<td>{attempts}");
        }
        end_table(html, chosen.pools.len());
    }

    fn begin_table(&self, html: &mut String, heading: &str, titles: &[&str], rows: usize) {
        let _ = writeln!(html, "<h2>{heading}</h2>");
        if rows == 0 {
            let _ = writeln!(html, "<p class=\"none\">{}</p>", self.pick("None.", "ありません。"));
            return;
        }
        html.push_str("<div class=\"wide\"><table><thead><tr>");
        for title in titles {
            let _ = write!(html, "<th scope=\"col\">{title}");
        }
        html.push_str("</thead>\n");
    }

    fn nothing(&self) -> &'static str {
        self.pick(
            "No task was handed in yet. Try: <code>ekiden task add hello</code>",
            "タスクはまだありません。例: <code>ekiden task add hello</code>",
        )
    }

    const fn pick(&self, en: &'static str, ja: &'static str) -> &'static str {
        match self.language {
            Language::En => en,
            Language::Ja => ja,
        }
    }

    fn ago(&self, at: Timestamp) -> String {
        let seconds = self.now.since(at).as_u64() / 1_000;
        let (count, en, ja) = match seconds {
            0..60 => (seconds, "s", "秒"),
            60..3_600 => (seconds / 60, "min", "分"),
            3_600..86_400 => (seconds / 3_600, "h", "時間"),
            _ => (seconds / 86_400, "d", "日"),
        };
        let text = match self.language {
            Language::En => format!("{count} {en} ago"),
            Language::Ja => format!("{count}{ja}前"),
        };
        format!("<time datetime=\"{at}\" title=\"{at}\">{text}</time>")
    }
}

fn end_table(html: &mut String, rows: usize) {
    if rows > 0 {
        html.push_str("</table></div>\n");
    }
}

/// A runner that names none serves all.
fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "*".to_owned() } else { names.join(", ") }
}

/// A name inside a query.
fn encoded(name: &str) -> String {
    form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(language: Language) -> Overview {
        let info = QueueInfo { store: "<memory>".to_owned(), durable: String::new(), near: true };
        let namespaces = vec![Namespace::new("a&b").unwrap(), Namespace::new("<script>").unwrap()];
        Overview { language, now: Timestamp::ZERO, info, namespaces, chosen: None }
    }

    #[test]
    fn names_cannot_become_markup_and_nothing_comes_from_outside() {
        for language in [Language::En, Language::Ja] {
            let page = empty(language).page();
            assert!(page.contains("href=\"/?namespace=a%26b\"") && page.contains(">a&amp;b</a>"), "{page}");
            assert!(page.contains("&lt;script&gt;") && page.contains("&lt;memory&gt;"), "{page}");
            for never in ["<script", "http://", "https://", " style=", "onclick", "@import", "url("] {
                assert!(!page.contains(never) && !STYLE.contains(never), "{never}");
            }
        }
    }

    #[test]
    fn ages_are_told_in_the_unit_that_fits() {
        let mut page = empty(Language::En);
        page.now = Timestamp::from_millis(200_000_000);
        let ago = |seconds: i64| page.ago(Timestamp::from_millis(200_000_000 - seconds * 1_000));
        for (seconds, text) in [(0, ">0 s ago<"), (59, ">59 s ago<"), (60, ">1 min ago<"), (7_200, ">2 h ago<")] {
            assert!(ago(seconds).contains(text), "{}", ago(seconds));
        }
        assert!(ago(172_800).contains(">2 d ago<"));
    }
}
