//! Keeps pages of other sites away: a browser sends them to local servers too, so Host, Origin and Sec-Fetch-Site are
//! checked on every request, whatever its route and method.

use std::net::SocketAddr;

use axum::http::Uri;
use ekiden_core::reason::{ReasonCode, Refusal};

use crate::said::{Once, Said};

/// The names that a server answers for.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    port: u16,
    /// Names of this machine, good with the port that is listened on.
    own: Vec<String>,
    /// Names that somebody set up: they stand for a proxy, whose port is its own business.
    given: Vec<String>,
    /// Headers that are good as they are, as nearly everybody sends them.
    usual: Vec<String>,
}

impl Guard {
    /// Answers for loopback names, for the address itself, and for these.
    pub(crate) fn new(bound: SocketAddr, names: &[String]) -> Self {
        let mut own: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        if !bound.ip().is_unspecified() {
            let ip = bound.ip();
            own.push(if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() });
        }
        let mut usual: Vec<String> = own.iter().map(|name| format!("{name}:{}", bound.port())).collect();
        usual.dedup();
        Self { port: bound.port(), own, given: names.to_vec(), usual }
    }

    /// Refuses what comes from elsewhere, or wants to go elsewhere.
    pub(crate) fn check(&self, uri: &Uri, said: &Said<'_>) -> Result<(), Refusal> {
        let host = self.host(uri, said)?;
        let is_ours = match said.origin {
            Once::Missing => true,
            Once::Given(origin) => origin.to_str().is_ok_and(|origin| is_origin_of(origin, host)),
            Once::Repeated => false,
        };
        if !is_ours || said.of_another_site {
            return Err(Refusal::new(ReasonCode::OriginForeign));
        }
        Ok(())
    }

    fn host<'a>(&self, uri: &Uri, said: &Said<'a>) -> Result<&'a str, Refusal> {
        let foreign = || Refusal::new(ReasonCode::HostForeign);
        let Once::Given(host) = said.host else { return Err(foreign()) };
        let host = host.to_str().map_err(|_| foreign())?;
        // A target with an authority of its own must name the same one, or the header would mean nothing.
        let elsewhere = uri.authority().is_some_and(|authority| !authority.as_str().eq_ignore_ascii_case(host));
        if elsewhere || !self.answers_for(host) {
            return Err(foreign());
        }
        Ok(host)
    }

    fn answers_for(&self, host: &str) -> bool {
        if self.usual.iter().any(|usual| usual == host) {
            return true;
        }
        let (name, port) = split(host);
        // Without a port it is the one that the scheme usually has.
        let ours = port.unwrap_or(80) == self.port;
        let is = |known: &String| known.eq_ignore_ascii_case(name);
        ours && self.own.iter().any(is) || self.given.iter().any(is)
    }
}

fn split(host: &str) -> (&str, Option<u16>) {
    // The colons inside an IPv6 address belong to it.
    let after = host.rfind(']').unwrap_or(0);
    match host.get(after..).and_then(|rest| rest.rfind(':')) {
        Some(at) => {
            let (name, port) = host.split_at(after + at);
            // A port that is no number is nobody's: zero is never listened on.
            (name, Some(port.get(1..).and_then(|port| port.parse().ok()).unwrap_or(0)))
        }
        None => (host, None),
    }
}

fn is_origin_of(origin: &str, host: &str) -> bool {
    let named = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    named.is_some_and(|named| named.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderValue};

    use super::*;

    fn checked(headers: &[(&'static str, &'static str)]) -> Option<ReasonCode> {
        let guard = Guard::new("127.0.0.1:7077".parse().unwrap(), &["ekiden.example".to_owned()]);
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        guard.check(&Uri::from_static("/"), &Said::read(&map)).err().map(|refusal| refusal.code)
    }

    #[test]
    fn only_names_of_this_server_are_answered() {
        for host in ["127.0.0.1:7077", "localhost:7077", "LOCALHOST:7077", "[::1]:7077", "ekiden.example"] {
            assert_eq!(checked(&[("host", host)]), None, "{host}");
        }
        for host in ["evil.example:7077", "127.0.0.1:7078", "127.0.0.1", "localhost:7077:7077", "", "a@localhost:7077"]
        {
            assert_eq!(checked(&[("host", host)]), Some(ReasonCode::HostForeign), "{host}");
        }
        assert_eq!(checked(&[]), Some(ReasonCode::HostForeign));
        let twice = [("host", "127.0.0.1:7077"), ("host", "127.0.0.1:7077")];
        assert_eq!(checked(&twice), Some(ReasonCode::HostForeign));
    }

    #[test]
    fn only_pages_of_this_server_are_answered() {
        let host = ("host", "localhost:7077");
        assert_eq!(checked(&[host, ("origin", "http://localhost:7077")]), None);
        assert_eq!(checked(&[host, ("sec-fetch-site", "none")]), None);
        for (name, value) in [
            ("origin", "http://evil.example"),
            ("origin", "null"),
            ("origin", "http://127.0.0.1:7077"),
            ("origin", "http://localhost:7078"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(checked(&[host, (name, value)]), Some(ReasonCode::OriginForeign), "{name}: {value}");
        }
    }
}
