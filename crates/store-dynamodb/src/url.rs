//! The part of an address behind `dynamodb:` (Q13): nothing for DynamoDB Local, `?endpoint=URL` for another server, and
//! `//REGION?live=true` for the service itself, which nobody reaches by accident.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::Others;

use crate::credentials::Keys;
use crate::open::Options;

/// 64 parts: 32,000 claims a second in one line, and a claim that looks at every part still ends within a second.
const SHARDS_MAX: u32 = 64;

/// Where a DynamoDB is, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Where.
    pub place: Place,
    /// Whether somebody said that other programs run its tasks (`shared=true`).
    pub others: Others,
    /// How many parts a line of ready tasks has (`shards=N`), if somebody said.
    pub shards: Option<u32>,
}

/// Where a DynamoDB is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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
        let (mut endpoint, mut live, mut others, mut shards) = (None, false, Others::Possible, None);
        for setting in settings.split('&').filter(|setting| !setting.is_empty()) {
            match setting.split_once('=') {
                Some(("endpoint", url)) if is_endpoint(url) => endpoint = Some(url.to_owned()),
                Some(("endpoint", _)) => return wrong("an endpoint begins with http:// or https://"),
                Some(("shared", "true")) => others = Others::Certain,
                Some(("shared", "false")) => others = Others::Possible,
                Some(("shards", count)) => match count.parse() {
                    Ok(count @ 1..=SHARDS_MAX) => shards = Some(count),
                    _ => return wrong("shards is a number from 1 to 64"),
                },
                Some(("live", "true")) => live = true,
                Some(("live", "false")) => live = false,
                _ => return wrong("there is endpoint=URL, live=true, shared=true and shards=N, and nothing else"),
            }
        }
        let place = match (region, endpoint, live) {
            (None, None, false) => Place::Local,
            (None, Some(endpoint), false) => Place::Endpoint(endpoint),
            (Some(region), None, true) => Place::Live(region.to_owned()),
            (Some(_), None, false) => return wrong("reaching AWS itself needs live=true"),
            (None, None, true) => return wrong("live=true needs a region, as in dynamodb://eu-central-1?live=true"),
            (_, Some(_), _) => return wrong("an endpoint has no region and is never live"),
        };
        Ok(Self { place, others, shards })
    }
}

fn is_endpoint(url: &str) -> bool {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    host.is_some_and(|host| !host.is_empty())
}

fn is_region(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = Vec::new();
        match &self.place {
            Place::Local => {}
            Place::Endpoint(endpoint) => settings.push(format!("endpoint={endpoint}")),
            Place::Live(region) => {
                write!(f, "//{region}")?;
                settings.push("live=true".to_owned());
            }
        }
        settings.extend((self.others == Others::Certain).then(|| "shared=true".to_owned()));
        settings.extend(self.shards.map(|count| format!("shards={count}")));
        if settings.is_empty() { Ok(()) } else { write!(f, "?{}", settings.join("&")) }
    }
}

impl Location {
    /// The server that gets this process's keys, if the address names one.
    pub fn gets_keys(&self) -> Option<&str> {
        match &self.place {
            Place::Endpoint(endpoint) => (self.options().keys == Keys::Usual).then_some(endpoint),
            Place::Local | Place::Live(_) => None,
        }
    }

    /// How a store there is opened.
    pub fn options(&self) -> Options {
        let usual = Options::default();
        let (endpoint, region) = match &self.place {
            Place::Local => (usual.endpoint.clone(), usual.region.clone()),
            Place::Endpoint(endpoint) => {
                (endpoint.clone(), variable("AWS_REGION").unwrap_or_else(|| usual.region.clone()))
            }
            Place::Live(region) => (aws_endpoint(region), region.clone()),
        };
        // What needs no TLS is on this machine or a test's, and checks no signature.
        let keys = if endpoint.starts_with("https://") { Keys::Usual } else { Keys::Any };
        let ca_bundle = variable("AWS_CA_BUNDLE").map(PathBuf::from);
        let ready_shards = self.shards.unwrap_or(usual.ready_shards);
        Options { endpoint, region, keys, ca_bundle, ready_shards, others: self.others, ..usual }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Regions of China have a domain of their own.
fn aws_endpoint(region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://dynamodb.{region}.{domain}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Q13: the local server unless somebody says otherwise, and AWS only when somebody says so twice.
    #[test]
    fn aws_itself_is_reached_only_on_purpose() {
        let read = |text: &str| text.parse::<Location>();
        let endpoint = |text: &str| read(text).unwrap().options().endpoint;
        assert_eq!(read("").unwrap().place, Place::Local);
        assert_eq!(endpoint(""), "http://localhost:8000");
        assert_eq!(endpoint("?endpoint=http://127.0.0.1:9000"), "http://127.0.0.1:9000");
        assert_eq!(read("").unwrap().options().keys, Keys::Any, "no key leaves for a local server");
        let live = read("//eu-central-1?live=true").unwrap();
        assert_eq!(live.place, Place::Live("eu-central-1".to_owned()));
        assert_eq!(live.options().endpoint, "https://dynamodb.eu-central-1.amazonaws.com");
        assert_eq!((live.options().region.as_str(), live.options().keys), ("eu-central-1", Keys::Usual));
        assert_eq!(endpoint("//cn-north-1?live=true"), "https://dynamodb.cn-north-1.amazonaws.com.cn");
        assert_eq!(read("?endpoint=https://x").unwrap().options().keys, Keys::Usual);
        assert_eq!(read("?endpoint=https://x").unwrap().gets_keys(), Some("https://x"));
        for plain in ["", "?endpoint=http://x", "//eu-central-1?live=true"] {
            assert_eq!(read(plain).unwrap().gets_keys(), None);
        }
        assert_eq!(read("?shared=true").unwrap().options().others, Others::Certain);
        assert_eq!(read("?shards=8").unwrap().options().ready_shards, 8);
        for wrong in [
            "//eu-central-1",
            "//eu-central-1?live=false",
            "?live=true",
            "//",
            "//EU",
            "eu-central-1",
            "?endpoint=https://",
            "?shards=0",
            "?shards=65",
            "?shared=maybe",
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
        for text in
            ["", "?endpoint=http://127.0.0.1:9000&shards=4", "//eu-central-1?live=true&shared=true", "?shared=true"]
        {
            assert_eq!(text.parse::<Location>().unwrap().to_string(), text);
        }
    }
}
