//! What is not understood stays with its structure, and comes back when somebody understands it.

use serde_json::json;

use super::*;

const VERSIONS: Versions = Versions { version: 9, min_writer: 1 };

/// A structure as a program knows it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Older {
    a: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inner: Option<Inner>,
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    newer: Newer,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    b: Word,
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    newer: Newer,
}

/// The same some versions later.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Later {
    a: u64,
    inner: Option<Inner>,
    c: Option<Word>,
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    newer: Newer,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    One,
    Two(u8),
    Three { deep: Vec<bool> },
}

fn value(of: serde_json::Value) -> Value {
    serde_json::from_value(of).unwrap()
}

fn older(of: serde_json::Value) -> Older {
    read(value(of), VERSIONS, true).unwrap()
}

#[test]
fn fields_without_a_name_here_are_kept_at_every_level() {
    let read = older(json!({"a": 1, "c": {"two": 3}, "inner": {"b": "one", "d": [null, -2, 0.5]}}));
    assert_eq!((read.a, &read.inner.as_ref().unwrap().b), (1, &Word::One));
    assert_eq!(read.newer.fields(), [(Value::text("c"), value(json!({"two": 3})))]);
    assert_eq!(read.inner.unwrap().newer.fields(), [(Value::text("d"), value(json!([null, -2, 0.5])))]);
}

#[test]
fn numbers_beyond_the_last_field_are_kept_and_the_pseudo_field_has_none() {
    let entries = vec![(Value::Unsigned(0), Value::Unsigned(7)), (Value::Unsigned(2), Value::text("two"))];
    let read: Older = read(Value::Map(entries), VERSIONS, false).unwrap();
    assert_eq!((read.a, read.newer.fields()), (7, &[(Value::Unsigned(2), Value::text("two"))][..]));
}

#[test]
fn a_record_that_says_nothing_new_carries_nothing() {
    let read = older(json!({"a": 1, "inner": {"b": {"three": {"deep": [true]}}}}));
    assert_eq!(read.inner.as_ref().unwrap().b, Word::Three { deep: vec![true] });
    assert!(read.newer.is_none() && read.inner.unwrap().newer.is_none());
    assert_eq!(size_of::<Newer>(), size_of::<usize>());
}

/// A field may be anything, also what JSON has no word for.
#[test]
fn whatever_is_kept_goes_through_json_and_back() {
    let odd = vec![
        (Value::Unsigned(3), Value::Bytes([0, 255].into())),
        (Value::text("map"), Value::Map(vec![(Value::Unsigned(1), Value::Nil), (Value::Bool(true), Value::Nil)])),
        (Value::text("ours"), Value::Map(vec![(Value::text("~hex"), Value::text("zz"))])),
        (Value::text("list"), Value::List(vec![Value::Map(vec![(Value::text("x"), Value::Float(0))])])),
    ];
    let kept = Newer::new(VERSIONS, odd);
    let text = serde_json::to_string(&kept).unwrap();
    assert_eq!(serde_json::from_str::<Newer>(&text).unwrap(), kept, "{text}");
    for broken in ["[9]", "[9,1,3]", "[9,1,null,3]", r#"[9,1,3,{"~hex":"zz"}]"#, r#"[9,1,3,{"~map":[1]}]"#] {
        assert!(serde_json::from_str::<Newer>(broken).is_err(), "{broken}");
    }
}

/// What an older program exported is understood by whoever understands it, and by nobody else.
#[test]
fn what_was_carried_is_a_field_again_for_a_program_that_knows_it() {
    let carried = serde_json::to_value(older(json!({"a": 1, "c": {"two": 3}, "later": 4}))).unwrap();
    assert_eq!(carried, json!({"a": 1, "~": [9, 1, "c", {"two": 3}, "later", 4]}));
    let later: Later = read(value(carried.clone()), Versions::UNTOLD, true).unwrap();
    assert_eq!(later.c, Some(Word::Two(3)));
    assert_eq!(later.newer, Newer::new(VERSIONS, vec![(Value::text("later"), Value::Unsigned(4))]));
    assert_eq!(older(carried), older(json!({"a": 1, "c": {"two": 3}, "later": 4})));
}
