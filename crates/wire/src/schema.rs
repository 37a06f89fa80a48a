//! How the words of core look in the OpenAPI document. These types are never made: they only describe.
#![allow(missing_docs, dead_code, reason = "shapes for a generator, described by what they stand for")]

use std::borrow::Cow;

use ekiden_core::{attempt, event, limits, task};
use utoipa::openapi::schema::{KnownFormat, Object, SchemaFormat, Type};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! described {
    ($($name:ident = $schema:expr;)+) => {$(
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                RefOr::T(Schema::Object($schema.into()))
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($name))
            }
        }
    )+};
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn whole(least: usize, most: u64) -> ObjectBuilder {
    let most = usize::try_from(most).expect("maxima fit the machine");
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(least)).maximum(Some(most))
}

fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> Object {
    text().enum_values(Some(words.into_iter().map(str::to_owned).collect::<Vec<_>>())).build()
}

described! {
    Id = text().min_length(Some(1)).max_length(Some(128)).description(Some("1 to 128 bytes of text without control characters"));
    OpId = text().format(Some(SchemaFormat::Custom("uuid".to_owned()))).description(Some("a uuid that the caller made"));
    Moment = text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).description(Some("UTC, always 24 characters in answers"));
    Json = ObjectBuilder::new().schema_type(utoipa::openapi::schema::SchemaType::AnyValue).description(Some("any JSON value"));
    Span = whole(1, limits::DURATION_MAX.as_u64()).description(Some("milliseconds, at least one and at most ten years"));
    Delay = whole(0, limits::DURATION_MAX.as_u64()).description(Some("milliseconds, at most ten years"));
    Slots = whole(1, 10_000).description(Some("a number of tasks"));
    TaskState = one_of(task::Phase::ALL.iter().map(|phase| phase.as_str()));
    EventName = one_of(event::EventName::ALL.iter().map(|event| event.as_str()));
    Outcome = one_of(attempt::Outcome::ALL.iter().map(|outcome| outcome.as_str()));
    Stage = one_of(["signalled", "exited", "verified"]);
    Jitter = one_of(["none", "equal"]);
    Hold = one_of(["until_final", "while_running"]);
    OnParentFailure = one_of(["block", "cancel", "run"]);
    Missed = one_of(["latest", "skip", "all"]);
    Overlap = one_of(["skip", "allow"]);
}
