//! What the exit code of a command says. Every code stands here and nowhere else; `ekiden help exit-codes` prints the table.

use std::process::ExitCode;

use ekiden::TaskState;

use crate::language::Lang;

/// How a command ended, for whoever started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All is well; a task that was waited for has succeeded.
    Success,
    /// It was refused or failed, something was found, or a task is dead.
    Failure,
    /// The command cannot be meant. The same that clap says for flags that do not exist.
    Usage,
    /// A task that was waited for was cancelled.
    Cancelled,
    /// What was waited for did not come in time.
    TimeUp,
    /// Ctrl-C: 128 and the signal's number, as shells have it.
    Keyboard,
    /// A supervisor ended it, likewise.
    Terminated,
}

impl Exit {
    /// Every code, in the order of the table.
    const ALL: [Self; 7] =
        [Self::Success, Self::Failure, Self::Usage, Self::Cancelled, Self::TimeUp, Self::Keyboard, Self::Terminated];

    /// The code of a task that has ended so; what has not ended says nothing yet.
    pub(crate) const fn of(state: TaskState) -> Option<Self> {
        match state {
            TaskState::Succeeded => Some(Self::Success),
            TaskState::Dead => Some(Self::Failure),
            TaskState::Cancelled => Some(Self::Cancelled),
            _ => None,
        }
    }

    const fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::Cancelled => 4,
            Self::TimeUp => 5,
            Self::Keyboard => 130,
            Self::Terminated => 143,
        }
    }

    const fn meaning(self, lang: Lang) -> &'static str {
        match self {
            Self::Success => lang
                .pick("all is well; a task that was waited for has succeeded", "正常終了。待っていたタスクが成功した"),
            Self::Failure => lang.pick(
                "refused or failed; a check found something; a task that was waited for is dead",
                "拒否または失敗。検査で問題が見つかった。待っていたタスクが失敗（dead）で終わった",
            ),
            Self::Usage => lang.pick(
                "the command cannot be meant: a wrong flag, address or value",
                "コマンドの誤り（フラグ、アドレス、値など）",
            ),
            Self::Cancelled => {
                lang.pick("a task that was waited for was cancelled", "待っていたタスクがキャンセルされた")
            }
            Self::TimeUp => lang.pick(
                "what was waited for did not come within --timeout",
                "--timeout の時間内に、待っていた状態にならなかった",
            ),
            Self::Keyboard => lang.pick("interrupted by Ctrl-C (SIGINT)", "Ctrl-C（SIGINT）で中断された"),
            Self::Terminated => lang.pick("ended by SIGTERM", "SIGTERM で終了した"),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

/// The table, one code a line.
pub(crate) fn table(lang: Lang) -> String {
    let line = |exit: Exit| format!("{:>3}  {}\n", exit.number(), exit.meaning(lang));
    let lead = lang.pick("Exit codes of every command:\n", "すべてのコマンドに共通の終了コード:\n");
    let run = lang.pick(
        "`ekiden run -- CMD` passes the exit code of CMD through; `ekiden run --help` has the rest.\n",
        "`ekiden run -- CMD` は CMD の終了コードをそのまま返します。詳しくは `ekiden run --help` をご覧ください。\n",
    );
    Exit::ALL.into_iter().fold(lead.to_owned(), |table, exit| table + &line(exit)) + run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_final_state_has_a_code_of_its_own_and_no_other_has_any() {
        let codes = TaskState::ALL.map(|state| Exit::of(state).map(Exit::number));
        for (state, code) in TaskState::ALL.into_iter().zip(codes) {
            assert_eq!(code.is_some(), state.is_final(), "{state}");
            let same = codes.iter().filter(|other| other.is_some() && **other == code).count();
            assert!(same <= 1, "{state}");
        }
    }

    #[test]
    fn the_table_has_every_code_once() {
        for lang in [Lang::En, Lang::Ja] {
            for exit in Exit::ALL {
                let start = format!("\n{:>3}  ", exit.number());
                assert_eq!(table(lang).matches(&start).count(), 1, "{exit:?}");
            }
        }
    }
}
