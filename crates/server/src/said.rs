//! What the headers of a request say, read in one pass: the same few names are asked for with every request.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// What a browser says of who asks.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What the headers of a request say.
#[derive(Default)]
pub(crate) struct Said<'a> {
    /// How many bytes all of them have.
    pub(crate) bytes: usize,
    pub(crate) host: Once<'a>,
    pub(crate) origin: Once<'a>,
    pub(crate) authorization: Once<'a>,
    /// Whether a browser says that a page of another site asks.
    pub(crate) of_another_site: bool,
    pub(crate) language: Option<&'a HeaderValue>,
    pub(crate) content_type: Option<&'a HeaderValue>,
    pub(crate) idempotency_key: Option<&'a HeaderValue>,
    pub(crate) last_event_id: Option<&'a HeaderValue>,
}

/// A header that may stand there once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Once<'a> {
    /// It is missing.
    #[default]
    Missing,
    /// It stands there once.
    Given(&'a HeaderValue),
    /// It stands there more than once, so nobody knows which one is meant.
    Repeated,
}

impl<'a> Once<'a> {
    fn add(&mut self, value: &'a HeaderValue) {
        *self = match self {
            Self::Missing => Self::Given(value),
            Self::Given(_) | Self::Repeated => Self::Repeated,
        };
    }
}

impl<'a> Said<'a> {
    /// Reads them. Of the names that may repeat, the first value counts.
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            said.bytes += name.as_str().len() + value.len();
            if *name == header::HOST {
                said.host.add(value);
            } else if *name == header::CONTENT_LENGTH {
                // hyper has read it.
            } else if *name == header::CONTENT_TYPE {
                said.content_type.get_or_insert(value);
            } else if *name == header::AUTHORIZATION {
                said.authorization.add(value);
            } else if *name == header::ORIGIN {
                said.origin.add(value);
            } else if *name == header::ACCEPT_LANGUAGE {
                said.language.get_or_insert(value);
            } else if *name == SEC_FETCH_SITE {
                said.of_another_site |= !matches!(value.as_bytes(), b"same-origin" | b"none");
            } else if *name == IDEMPOTENCY_KEY {
                said.idempotency_key.get_or_insert(value);
            } else if *name == LAST_EVENT_ID {
                said.last_event_id.get_or_insert(value);
            }
        }
        said
    }

    /// Whether the body is JSON.
    pub(crate) fn is_json(&self) -> bool {
        const JSON: &str = "application/json";
        let Some(given) = self.content_type else { return false };
        if given.as_bytes() == JSON.as_bytes() {
            return true;
        }
        let named = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        named.trim().eq_ignore_ascii_case(JSON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_recognised_with_its_parameters_and_in_any_case() {
        for (given, is_json) in [
            ("application/json", true),
            ("Application/JSON ; charset=utf-8", true),
            ("application/jsonl", false),
            ("text/plain", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(given))]);
            assert_eq!(Said::read(&headers).is_json(), is_json, "{given:?}");
        }
        assert!(!Said::default().is_json());
    }
}
