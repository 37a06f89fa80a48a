//! The demo's tasks and the handler that runs them. Each task shows one rule; its title says which.

use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{Kind, Millis, Progress, Question, QuestionId, ReasonCode, RetryPolicy, TaskId};
use ekiden::{Client, Context, Done, EnqueueBuilder, Payload, Runner, TaskError};
use serde::{Deserialize, Serialize};

use crate::language::Lang;
use crate::row::Row;

/// Fewer than there are tasks, so that some have to wait for a free place.
const CONCURRENCY: usize = 6;

/// 200 legs are looked at for the latest round: far more than people retry by hand.
const LEGS_LISTED: usize = 200;

/// What tasks of the demo are called. A leg of another name is somebody else's.
const NAMES: [&str; 10] = [
    "resize-photos",
    "call-api",
    "send-mail",
    "report",
    "publish",
    "deploy-1",
    "deploy-2",
    "deploy-3",
    "襷リレー",
    ASKING,
];

/// The task that asks.
const ASKING: &str = "ship-it";

/// How much of the demo is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything.
    All,
    /// What ends by itself.
    WithoutQuestions,
}

/// Five seconds, not the usual thirty: whoever kills the demo and starts it again should not wait for long.
const LEASE: Duration = Duration::from_secs(5);

/// One step of a leg: short enough to make a bar move, long enough to be seen.
const STEP: Duration = Duration::from_millis(100);

/// A leg of the relay: so many steps, some of which go wrong on purpose.
#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Leg {
    steps: u64,
    trouble: Trouble,
}

impl Default for Leg {
    fn default() -> Self {
        Self { steps: 20, trouble: Trouble::None }
    }
}

impl Payload for Leg {
    const TASK_TYPE: &'static str = "leg";
}

#[derive(Serialize, Deserialize)]
enum Trouble {
    None,
    /// This many attempts fail with this message, and may be repeated.
    Passing(u32, String),
    /// Every attempt would fail with this message; there is no second one.
    Lasting(String),
    /// Only a person knows how it ends.
    Question(String),
}

async fn run(leg: Leg, context: Context) -> Result<Done, TaskError> {
    for step in 0..leg.steps {
        context.report(Progress { done: step, total: Some(leg.steps), note: None });
        tokio::time::sleep(STEP).await;
    }
    match leg.trouble {
        Trouble::Passing(times, why) if context.attempt() <= times => Err(TaskError::retryable(why)),
        Trouble::Lasting(why) => Err(TaskError::permanent(why)),
        Trouble::Question(text) => match context.answer() {
            None => Ok(Done::Asked(Box::new(question(&text)?))),
            Some(answer) if &*answer.content == "no" => Err(TaskError::permanent("the answer was no")),
            Some(answer) => Done::with(&answer.content),
        },
        Trouble::None | Trouble::Passing(..) => Ok(Done::Succeeded(None)),
    }
}

fn question(text: &str) -> Result<Question, TaskError> {
    let choices = ["yes", "no"].map(Arc::from).to_vec();
    let id = QuestionId::new("go").map_err(|refusal| TaskError::permanent(refusal.to_string()))?;
    Ok(Question { id, text: Arc::from(text), choices, deadline: None, default: None })
}

/// A runner for the demo's tasks.
pub(crate) fn runner(client: &Client) -> Result<Runner, ekiden::Error> {
    Runner::builder(client).handler(run).concurrency(CONCURRENCY).name("dev").lease(LEASE).build()
}

/// A round of the demo: its number goes behind the names of its tasks, but for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Round(u64);

impl Round {
    fn name(self, base: &str) -> String {
        if self.0 == 1 { base.to_owned() } else { format!("{base}.{}", self.0) }
    }

    /// The round of a task of the demo; `None` for anybody else's.
    fn of(name: &str) -> Option<Self> {
        let numbered = |(base, number): (&str, &str)| Some((base.to_owned(), number.parse().ok()?));
        let (base, number) = name.rsplit_once('.').and_then(numbered).unwrap_or_else(|| (name.to_owned(), 1));
        NAMES.contains(&base.as_str()).then_some(Self(number))
    }

    /// The round that goes on, or a new one when the tasks of the latest have all ended.
    async fn find(client: &Client) -> Result<Self, ekiden::Error> {
        let mut legs = client.all();
        legs.kind = Some(Kind::new(Leg::TASK_TYPE)?);
        let legs = client.list(legs, None, LEGS_LISTED).await?.items;
        let rounds = || legs.iter().filter_map(|task| Some((Self::of(task.id.as_str())?, task.state.is_final())));
        let Some(latest) = rounds().map(|(round, _)| round).max() else { return Ok(Self(1)) };
        let has_ended = rounds().filter(|(round, _)| *round == latest).all(|(_, is_final)| is_final);
        Ok(if has_ended { Self(latest.0 + 1) } else { latest })
    }
}

/// Hands every task in that is not there already, and returns what is to be shown of each, in the order of the screen.
pub(crate) async fn hand_in(client: &Client, extent: Extent, lang: Lang) -> Result<Vec<Row>, ekiden::Error> {
    let round = Round::find(client).await?;
    let photos = TaskId::new(round.name("resize-photos"))?;
    let calm = |steps| Leg { steps, trouble: Trouble::None };
    let unanswered = lang.pick("no answer (503)", "応答がありません (503)").to_owned();
    let unknown = lang.pick("no such address", "宛先が存在しません").to_owned();
    let waits = [900, 1_500].map(Millis::new).to_vec();
    let named = |id: &str, leg, en, ja| client.enqueue(leg).id(round.name(id)).title(lang.pick(en, ja));

    let mut tasks = vec![
        named("resize-photos", calm(16), "reports its progress", "進捗を報告"),
        named(
            "call-api",
            Leg { steps: 4, trouble: Trouble::Passing(2, unanswered) },
            "fails twice",
            "2回失敗してから成功",
        )
        .retry(RetryPolicy::Steps { delays: waits }),
        named("send-mail", Leg { steps: 5, trouble: Trouble::Lasting(unknown) }, "cannot succeed", "成功しない"),
        named("report", calm(8), "starts later", "あとで開始").delay(Duration::from_millis(1_500)),
        named("publish", calm(6), "after resize-photos", "resize-photos の後").depends_on([&photos]),
    ];
    for id in ["deploy-1", "deploy-2", "deploy-3"] {
        tasks.push(named(id, calm(6), "one deploy at a time", "deploy は1件ずつ").serial_key("deploy"));
    }
    tasks.push(named("襷リレー", calm(10), "a name in Japanese", "日本語の名前"));
    if extent == Extent::All {
        let question = lang.pick("Ship it?", "リリースしますか？").to_owned();
        let asking = Leg { steps: 3, trouble: Trouble::Question(question) };
        tasks.push(named(ASKING, asking, "asks a question", "質問する"));
    }

    let mut rows = Vec::new();
    for task in tasks {
        rows.push(enqueue(client, task).await?);
    }
    Ok(rows)
}

async fn enqueue(client: &Client, task: EnqueueBuilder) -> Result<Row, ekiden::Error> {
    let task = task.into_task()?;
    let id = task.task.id.clone();
    let is_there = match client.queue().enqueue(vec![task]).await.pop() {
        Some(Err(error)) if error.code() == ReasonCode::TaskExists => true,
        Some(enqueued) => enqueued.map(|_| false)?,
        None => false,
    };
    let record = client.get_status(&id).await?;
    let mut row = Row::new(id, record.title.clone().unwrap_or_else(|| Arc::from("")), record.max_attempts);
    // Of what is new all changes will be heard; of what is there this is all there is to hear.
    if is_there {
        row.catch_up(&record);
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_of_a_name_is_behind_its_dot_and_others_have_none() {
        assert_eq!(Round::of("call-api"), Some(Round(1)));
        assert_eq!(Round::of(&Round(3).name("襷リレー")), Some(Round(3)));
        assert_eq!((Round::of("mine"), Round::of("mine.2"), Round::of("call-api.x")), (None, None, None));
    }
}
