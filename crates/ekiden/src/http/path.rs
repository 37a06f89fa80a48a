//! The paths of the API. Names may hold anything but control characters, so every one is percent-encoded.

use std::fmt::{Display, Write as _};

use ekiden_core::id::Namespace;

/// A path under construction, with what comes behind its question mark.
pub(super) struct Path {
    text: String,
    has_query: bool,
}

/// What the server says of itself.
pub(super) fn root() -> Path {
    Path { text: "/api/v1".to_owned(), has_query: false }
}

/// Something of a namespace.
pub(super) fn of(namespace: &Namespace) -> Path {
    root().plain("namespaces").name(namespace.as_str())
}

impl Path {
    /// A step with a fixed name.
    pub(super) fn plain(mut self, step: &str) -> Self {
        self.text.push('/');
        self.text.push_str(step);
        self
    }

    /// A step that somebody named.
    pub(super) fn name(mut self, name: &str) -> Self {
        self.text.push('/');
        // Dots alone would be taken for a way up.
        let dots = name.bytes().all(|byte| byte == b'.');
        encode(&mut self.text, name, |byte| is_plain(byte) && !(dots && byte == b'.'));
        self
    }

    /// A wish behind the question mark.
    pub(super) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(name);
        self.text.push('=');
        encode(&mut self.text, &value.to_string(), is_plain);
        self
    }

    /// The same, where there is one.
    pub(super) fn maybe(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~')
}

fn encode(out: &mut String, text: &str, is_plain: impl Fn(u8) -> bool) {
    for byte in text.bytes() {
        if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("text can always be written to");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_whatever_they_hold() {
        let namespace = Namespace::new("a/b ü").unwrap();
        let path = of(&namespace).plain("tasks").name("..").with("state", "x&y").maybe("none", None::<u8>).with("n", 2);
        assert_eq!(path.as_str(), "/api/v1/namespaces/a%2Fb%20%C3%BC/tasks/%2E%2E?state=x%26y&n=2");
    }
}
