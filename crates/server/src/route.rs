//! What a row of the route table says: where a request arrives, what it needs, takes and gives, and who handles it. Router,
//! OpenAPI document, API page and security tests are all made of such rows.

use std::borrow::Cow;

use axum::http::Method;
use ekiden::Error;
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use crate::access::Scope;
use crate::answer::Answer;
use crate::call::Call;
use crate::finish::Work;

/// Who handles the requests of a route.
pub(crate) type Handler = fn(Call) -> Work<Result<Answer, Error>>;

/// A row of the table.
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with names in braces.
    pub path: &'static str,
    /// What a caller's token must allow.
    pub scope: Scope,
    /// The operation's name.
    pub operation: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// What stands behind the question mark.
    pub query: &'static [Parameter],
    pub(crate) takes: Takes,
    pub(crate) gives: Gives,
    pub(crate) runs: Runs,
    pub(crate) handler: Handler,
}

/// A name that may stand behind the question mark.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// What it means.
    pub what: &'static str,
    /// What may be said. The description and the check of a request are both made of it.
    pub values: Values,
    /// Whether it may stand there more than once.
    pub repeats: bool,
    /// Whether it has to be said.
    pub needed: bool,
}

/// What may stand behind a name of a query.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// A text of so many characters.
    Text {
        /// The longest.
        chars_max: usize,
    },
    /// The name of something.
    Id,
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of the states of a task, or several with commas between them.
    States,
    /// A whole number.
    Number {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
}

/// What a body holds.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    /// There is none.
    Nothing,
    /// JSON of a shape.
    Json { shape: Shape, bytes_max: usize },
    /// JSON of a shape, or nothing.
    JsonOrNothing { shape: Shape, bytes_max: usize },
    /// Bytes.
    Octets { bytes_max: usize },
}

/// What an answer holds when all is well.
#[derive(Clone, Copy)]
pub(crate) enum Gives {
    /// Nothing, with 204.
    Nothing,
    /// JSON of a shape, with one of these statuses.
    Json { shape: Shape, statuses: &'static [u16] },
    /// A media type that JSON's shapes do not describe.
    Other { media_type: &'static str },
}

/// What happens to a request whose caller goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    /// It is dropped: it changes nothing, or finishes by itself what it must.
    WhileHeard,
    /// It is carried to its end.
    ToItsEnd,
}

/// A type of the wire, described.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) name: fn() -> Cow<'static, str>,
    pub(crate) schema: fn() -> RefOr<Schema>,
    pub(crate) schemas: fn(&mut Vec<(String, RefOr<Schema>)>),
}

impl Shape {
    fn of<T: ToSchema>() -> Self {
        Self { name: T::name, schema: T::schema, schemas: T::schemas }
    }
}

impl Route {
    pub(crate) fn new(
        method: Method,
        path: &'static str,
        scope: Scope,
        operation: &'static str,
        summary: &'static str,
        handler: Handler,
    ) -> Self {
        Self {
            method,
            path,
            scope,
            operation,
            summary,
            query: &[],
            takes: Takes::Nothing,
            gives: Gives::Nothing,
            runs: Runs::WhileHeard,
            handler,
        }
    }

    pub(crate) fn takes<T: ToSchema>(self, bytes_max: usize) -> Self {
        Self { takes: Takes::Json { shape: Shape::of::<T>(), bytes_max }, ..self }
    }

    pub(crate) fn may_take<T: ToSchema>(self, bytes_max: usize) -> Self {
        Self { takes: Takes::JsonOrNothing { shape: Shape::of::<T>(), bytes_max }, ..self }
    }

    pub(crate) fn takes_octets(self, bytes_max: usize) -> Self {
        Self { takes: Takes::Octets { bytes_max }, ..self }
    }

    pub(crate) fn gives<T: ToSchema>(self) -> Self {
        self.gives_with::<T>(&[200])
    }

    pub(crate) fn gives_with<T: ToSchema>(self, statuses: &'static [u16]) -> Self {
        Self { gives: Gives::Json { shape: Shape::of::<T>(), statuses }, ..self }
    }

    pub(crate) fn gives_other(self, media_type: &'static str) -> Self {
        Self { gives: Gives::Other { media_type }, ..self }
    }

    pub(crate) fn asks(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    pub(crate) fn carried_to_its_end(self) -> Self {
        Self { runs: Runs::ToItsEnd, ..self }
    }

    pub(crate) fn body_bytes_max(&self) -> usize {
        match self.takes {
            Takes::Nothing => 0,
            Takes::Json { bytes_max, .. } | Takes::JsonOrNothing { bytes_max, .. } | Takes::Octets { bytes_max } => {
                bytes_max
            }
        }
    }
}

impl Parameter {
    const fn new(name: &'static str, what: &'static str, values: Values) -> Self {
        Self { name, what, values, repeats: false, needed: false }
    }

    pub(crate) const fn text(name: &'static str, what: &'static str, chars_max: usize) -> Self {
        Self::new(name, what, Values::Text { chars_max })
    }

    pub(crate) const fn id(name: &'static str, what: &'static str) -> Self {
        Self::new(name, what, Values::Id)
    }

    pub(crate) const fn words(name: &'static str, what: &'static str, words: &'static [&'static str]) -> Self {
        Self::new(name, what, Values::Words(words))
    }

    pub(crate) const fn number(name: &'static str, what: &'static str, min: u64, max: u64) -> Self {
        Self::new(name, what, Values::Number { min, max })
    }

    pub(crate) const fn flag(name: &'static str, what: &'static str) -> Self {
        Self::new(name, what, Values::Flag)
    }

    pub(crate) const fn states(name: &'static str, what: &'static str) -> Self {
        Self { repeats: true, ..Self::new(name, what, Values::States) }
    }

    pub(crate) const fn needed(self) -> Self {
        Self { needed: true, ..self }
    }
}
