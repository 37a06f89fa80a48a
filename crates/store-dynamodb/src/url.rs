//! The part of an address behind `dynamodb:` (Q13): nothing for DynamoDB Local, `?endpoint=URL` for another server, and
//! `//REGION?live=true` for the service itself, which nobody reaches by accident.

use std::fmt;
use std::str::FromStr;

use ekiden_core::reason::{ReasonCode, Refusal};

use crate::open::Options;

/// Where a DynamoDB is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// DynamoDB Local at its usual place.
    Local,
    /// A server that speaks as DynamoDB does.
    Endpoint(String),
    /// The service itself, in a region.
    Live(String),
}

impl FromStr for Location {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let wrong = |why: &str| {
            let url = format!("dynamodb:{}", text.chars().take(64).collect::<String>());
            Err(Refusal::new(ReasonCode::UrlInvalid).with("url", url).with("why", why))
        };
        let (place, settings) = text.split_once('?').unwrap_or((text, ""));
        let region = match place {
            "" => None,
            place => match place.strip_prefix("//") {
                Some(region) if is_region(region) => Some(region),
                _ => return wrong("behind dynamodb: comes nothing, a question mark, or // and a region"),
            },
        };
        let (mut endpoint, mut live) = (None, false);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("endpoint", url)) if url.starts_with("http://") => endpoint = Some(url.to_owned()),
                Some(("endpoint", _)) => return wrong("an endpoint begins with http://"),
                Some(("live", "true")) => live = true,
                Some(("live", "false")) => live = false,
                _ => return wrong("there is endpoint=URL and live=true, and nothing else"),
            }
        }
        match (region, endpoint, live) {
            (None, None, false) => Ok(Self::Local),
            (None, Some(endpoint), false) => Ok(Self::Endpoint(endpoint)),
            (Some(region), None, true) => Ok(Self::Live(region.to_owned())),
            (Some(_), None, false) => wrong("reaching AWS itself needs live=true"),
            (None, None, true) => wrong("live=true needs a region, as in dynamodb://eu-central-1?live=true"),
            (_, Some(_), _) => wrong("an endpoint has no region and is never live"),
        }
    }
}

fn is_region(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => Ok(()),
            Self::Endpoint(endpoint) => write!(f, "?endpoint={endpoint}"),
            Self::Live(region) => write!(f, "//{region}?live=true"),
        }
    }
}

impl Location {
    /// How a store there is opened.
    pub fn options(&self) -> Result<Options, Refusal> {
        match self {
            Self::Local => Ok(Options::default()),
            Self::Endpoint(endpoint) => Ok(Options { endpoint: endpoint.clone(), ..Options::default() }),
            Self::Live(_) => Err(Refusal::new(ReasonCode::UrlInvalid)
                .with("url", format!("dynamodb:{self}"))
                .with("why", "this build has no TLS and cannot reach AWS; use a local server or endpoint=")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Q13: the local server unless somebody says otherwise, and AWS only when somebody says so twice.
    #[test]
    fn aws_itself_is_reached_only_on_purpose() {
        let read = |text: &str| text.parse::<Location>();
        assert_eq!(read("").unwrap(), Location::Local);
        assert_eq!(read("").unwrap().options().unwrap().endpoint, "http://localhost:8000");
        let other = read("?endpoint=http://127.0.0.1:9000").unwrap();
        assert_eq!(other.options().unwrap().endpoint, "http://127.0.0.1:9000");
        assert_eq!(read("//eu-central-1?live=true").unwrap(), Location::Live("eu-central-1".to_owned()));
        assert!(read("//eu-central-1?live=true").unwrap().options().is_err(), "not with this build");
        for wrong in [
            "//eu-central-1",
            "//eu-central-1?live=false",
            "?live=true",
            "//",
            "//EU",
            "eu-central-1",
            "?endpoint=https://x",
            "?endpoint=",
            "//eu-central-1?endpoint=http://x",
            "?endpoint=http://x&live=true",
            "?region=x",
            "?live=yes",
        ] {
            assert_eq!(read(wrong).unwrap_err().code, ReasonCode::UrlInvalid, "{wrong}");
        }
    }

    #[test]
    fn a_location_is_written_as_it_was_read() {
        for text in ["", "?endpoint=http://127.0.0.1:9000", "//eu-central-1?live=true"] {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
    }
}
