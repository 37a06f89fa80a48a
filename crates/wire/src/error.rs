//! The one shape of every refusal and failure (L6): a category, a stable reason code, a text for people, and the facts.

use std::collections::BTreeMap;

use ekiden_core::reason::{Language, ReasonCode, Refusal};
use serde::{Deserialize, Serialize};

/// A request that was not carried out, or whose outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ErrorDetail {
    /// What sort of thing is wrong: `REQUEST`, `ACCESS`, `EXECUTION`, `STORE` or `SERVER`.
    pub category: String,
    /// The stable reason. Compare this, never the message.
    pub reason_code: String,
    /// What happened and why, in the caller's language.
    pub message: String,
    /// What to do, one step each, in the caller's language.
    #[serde(default)]
    pub actions: Vec<String>,
    /// The facts of this case, by name.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
    /// Whether it may have happened all the same.
    #[serde(default)]
    pub outcome: Happened,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// What the server's log calls this request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Whether a request that failed took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// It did not.
    #[default]
    NotApplied,
    /// It may have. The same request, with the same ids, may be sent again.
    Unknown,
}

impl ErrorDetail {
    /// A refusal in a language.
    pub fn new(refusal: &Refusal, language: Language) -> Self {
        let message = refusal.code.message(language);
        Self {
            category: refusal.code.category().as_str().to_owned(),
            reason_code: refusal.code.as_str().to_owned(),
            message: format!("{}: {}", message.title, message.summary),
            actions: message.actions.clone(),
            context: refusal.context.clone(),
            outcome: Happened::NotApplied,
            retryable: false,
            request_id: None,
        }
    }

    /// The refusal that it tells of. A code that only a newer version knows becomes the closest that this one does.
    pub fn refusal(&self) -> Refusal {
        match ReasonCode::parse(&self.reason_code) {
            Some(code) => Refusal { code, context: self.context.clone() },
            None => Refusal { code: ReasonCode::ServerRefused, context: self.context.clone() }
                .with("reason_code", &self.reason_code)
                .with("message", &self.message),
        }
    }
}
