//! What a request looks like when only a part of it is carried out, and when a claim has lost its condition.

use serde_json::{Map, Value, json};

/// Whether a part of it can be left out.
pub(super) fn can_be_taken(operation: &str, body: &Value) -> bool {
    match operation {
        "BatchGetItem" | "BatchWriteItem" => true,
        // A page that ends early leads to a next one, which a caller that wanted one item would never ask for.
        "Query" | "Scan" => body.get("Limit").and_then(Value::as_u64).is_none_or(|limit| limit > 1),
        _ => false,
    }
}

/// Takes a part of the request away. Of a batch it gives what is left, and the field of the answer that says so; a page just gets
/// shorter.
pub(super) fn take(
    operation: &str,
    body: &mut Value,
    below: impl Fn(usize) -> usize,
) -> Option<(&'static str, Map<String, Value>)> {
    match operation {
        "BatchGetItem" => Some(("UnprocessedKeys", batch(body, Some("Keys"), below))),
        "BatchWriteItem" => Some(("UnprocessedItems", batch(body, None, below))),
        _ => {
            let limit = body.get("Limit").and_then(Value::as_u64).unwrap_or(4);
            let shorter = 1 + below(usize::try_from(limit).unwrap_or(4).saturating_sub(1));
            if let Some(fields) = body.as_object_mut() {
                fields.insert("Limit".to_owned(), json!(shorter));
            }
            None
        }
    }
}

/// The entries behind a random place of each table's list. The first of all stays, for a batch of nothing is refused.
fn batch(body: &mut Value, list: Option<&str>, below: impl Fn(usize) -> usize) -> Map<String, Value> {
    let mut left = Map::new();
    let Some(tables) = body.get_mut("RequestItems").and_then(Value::as_object_mut) else { return left };
    for (table, wanted) in tables {
        let mut rest = wanted.clone();
        let inside = |value: &mut Value| match list {
            Some(list) => value.get_mut(list).and_then(Value::as_array_mut).map(std::mem::take),
            None => value.as_array_mut().map(std::mem::take),
        };
        let Some(mut entries) = inside(wanted) else { continue };
        let behind = entries.split_off(1 + below(entries.len()));
        *entries_of(wanted, list) = Value::Array(entries);
        if !behind.is_empty() {
            *entries_of(&mut rest, list) = Value::Array(behind);
            left.insert(table.clone(), rest);
        }
    }
    left
}

fn entries_of<'a>(value: &'a mut Value, list: Option<&str>) -> &'a mut Value {
    match list {
        Some(list) if value.is_object() => &mut value[list],
        _ => value,
    }
}

/// Adds to an answer what was not carried out.
pub(super) fn leave(body: &mut Value, field: &str, left: Map<String, Value>) {
    let place =
        body.as_object_mut().and_then(|fields| fields.entry(field).or_insert_with(|| json!({})).as_object_mut());
    if let Some(place) = place {
        place.extend(left);
    }
}

/// Makes the condition of a claim one that every item meets: a claim is an update of a task that writes RUNNING. Says whether
/// it was one.
pub(super) fn unguard_claim(body: &mut Value) -> bool {
    let of_tasks = body.get("TableName").and_then(Value::as_str).is_some_and(|name| name.ends_with("pm-runner-queue"));
    let values = body.get("ExpressionAttributeValues").and_then(Value::as_object);
    let claims = values.is_some_and(|values| values.values().any(|value| *value == json!({ "S": "RUNNING" })));
    let Some(condition) = body.get("ConditionExpression").and_then(Value::as_str).filter(|_| of_tasks && claims) else {
        return false;
    };
    let anything = format!("({condition}) OR attribute_exists(#planted)");
    body["ConditionExpression"] = anything.into();
    let names = body.get_mut("ExpressionAttributeNames").and_then(Value::as_object_mut);
    names.is_some_and(|names| names.insert("#planted".to_owned(), "namespace".into()).is_none())
}
