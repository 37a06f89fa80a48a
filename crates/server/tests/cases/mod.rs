//! Values at and just beyond the bounds that a schema states, each within an otherwise valid value.

use serde_json::{Map, Value, json};

/// The schemas of a description.
pub(crate) struct Schemas<'a> {
    pub(crate) description: &'a Value,
    /// The value of a field that depends on what is there, by the field's name.
    pub(crate) known: fn(&str) -> Option<Value>,
}

/// A value, and whether the schema allows it.
pub(crate) struct Case {
    /// Which part of the value is under test, and how.
    pub(crate) at: String,
    pub(crate) value: Value,
    pub(crate) is_allowed: bool,
}

fn case(at: &str, what: &str, value: Value, is_allowed: bool) -> Case {
    Case { at: format!("{at} {what}"), value, is_allowed }
}

impl Schemas<'_> {
    fn resolved<'s>(&'s self, schema: &'s Value) -> &'s Value {
        match schema["$ref"].as_str() {
            Some(path) => self.resolved(self.description.pointer(path.trim_start_matches('#')).unwrap()),
            None => schema,
        }
    }

    /// The smallest valid value. Those with different numbers differ, where they can.
    pub(crate) fn sample(&self, schema: &Value, number: usize) -> Value {
        let schema = self.resolved(schema);
        if let Some(variants) = schema["oneOf"].as_array() {
            return self.sample(&variants[0], number);
        }
        if let Some(words) = schema["enum"].as_array() {
            return words[number % words.len()].clone();
        }
        match kind(schema) {
            "object" => {
                let required = schema["required"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap());
                let fields = required.map(|name| (name.to_owned(), self.field(schema, name, number)));
                Value::Object(fields.collect())
            }
            "array" => {
                let count = schema["minItems"].as_u64().unwrap_or(0);
                (0..count).map(|at| self.sample(&schema["items"], usize::try_from(at).unwrap())).collect()
            }
            "string" => match schema["format"].as_str() {
                Some("uuid") => json!(format!("0192aaaa-0000-7000-8000-{number:012x}")),
                Some("date-time") => json!("2030-01-01T00:00:00.000Z"),
                _ => json!(format!("s{number}")),
            },
            "integer" => schema.get("minimum").cloned().unwrap_or(json!(0)),
            "boolean" => json!(false),
            _ => json!({"any": [1, null]}),
        }
    }

    fn field(&self, schema: &Value, name: &str, number: usize) -> Value {
        (self.known)(name)
            .filter(|_| !self.is_object(&schema["properties"][name]))
            .unwrap_or_else(|| self.sample(&schema["properties"][name], number))
    }

    fn is_object(&self, schema: &Value) -> bool {
        kind(self.resolved(schema)) == "object"
    }

    pub(crate) fn cases(&self, schema: &Value, at: &str) -> Vec<Case> {
        let schema = self.resolved(schema);
        if let Some(variants) = schema["oneOf"].as_array() {
            let takes_null = variants.iter().any(|variant| variant["type"] == "null");
            let mut cases = vec![case(at, "null", Value::Null, takes_null)];
            for variant in variants.iter().filter(|variant| variant["type"] != "null") {
                cases.extend(self.cases(variant, at).into_iter().filter(|case| !case.value.is_null()));
            }
            return cases;
        }
        let mut cases = match kind(schema) {
            "object" => self.of_object(schema, at),
            "array" => self.of_array(schema, at),
            "string" => of_string(schema, at),
            "integer" => of_integer(schema, at),
            "boolean" => vec![
                case(at, "true", json!(true), true),
                case(at, "false", json!(false), true),
                case(at, "of another type", json!("x"), false),
            ],
            _ => {
                let any = [json!(null), json!(1), json!("x"), json!([]), json!({})];
                return any.into_iter().map(|value| case(at, "anything", value, true)).collect();
            }
        };
        let takes_null = schema["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
        cases.push(case(at, "null", Value::Null, takes_null));
        cases
    }

    fn of_object(&self, schema: &Value, at: &str) -> Vec<Case> {
        let Value::Object(least) = self.sample(schema, 0) else { unreachable!("an object is one") };
        let with = |name: &str, value: Value| {
            let mut fields = least.clone();
            fields.insert(name.to_owned(), value);
            Value::Object(fields)
        };
        let mut cases =
            vec![case(at, "of another type", json!("x"), false), case(at, "with nothing optional", json!(least), true)];
        for name in least.keys() {
            let without: Map<String, Value> = least
                .iter()
                .filter(|(other, _)| *other != name)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            cases.push(case(at, &format!("without {name}"), json!(without), false));
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let is_free = (self.known)(name).is_none() || self.is_object(field);
            for inner in self.cases(field, &format!("{at}.{name}")) {
                // Of a field that depends on what is there only its type and its size are the description's matter.
                if is_free || !inner.is_allowed {
                    cases.push(Case { value: with(name, inner.value), ..inner });
                }
            }
        }
        if schema["additionalProperties"] == false {
            cases.push(case(at, "with an unknown field", with("no_such_field", json!(1)), false));
        } else if schema["additionalProperties"].is_object() {
            for inner in self.cases(&schema["additionalProperties"], &format!("{at}.*")) {
                cases.push(Case { value: with("a", inner.value), ..inner });
            }
        }
        cases
    }

    fn of_array(&self, schema: &Value, at: &str) -> Vec<Case> {
        let of = |count: u64| {
            (0..count).map(|number| self.sample(&schema["items"], usize::try_from(number).unwrap())).collect::<Value>()
        };
        let mut cases = vec![case(at, "of another type", json!({}), false)];
        let least = schema["minItems"].as_u64().unwrap_or(0);
        cases.push(case(at, "of the fewest items", of(least), true));
        if least > 0 {
            cases.push(case(at, "of too few items", of(least - 1), false));
        }
        if let Some(most) = schema["maxItems"].as_u64() {
            cases.push(case(at, "of the most items", of(most), true));
            cases.push(case(at, "of too many items", of(most + 1), false));
        }
        let items = self.cases(&schema["items"], &format!("{at}[]")).into_iter();
        cases.extend(items.map(|inner| Case { value: json!([inner.value]), ..inner }));
        cases
    }
}

fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::Array(types) => types.iter().find_map(|name| name.as_str().filter(|name| *name != "null")).unwrap(),
        name => name.as_str().unwrap_or_default(),
    }
}

fn of_string(schema: &Value, at: &str) -> Vec<Case> {
    let mut cases = vec![case(at, "of another type", json!({}), false)];
    if let Some(words) = schema["enum"].as_array() {
        cases.extend(words.iter().map(|word| case(at, "one of its words", word.clone(), true)));
        cases.push(case(at, "another word", json!("no_such_word"), false));
        return cases;
    }
    match schema["format"].as_str() {
        Some("uuid") => cases.push(case(at, "a uuid", json!("0192aaaa-0000-7000-8000-000000000001"), true)),
        Some("date-time") => cases.push(case(at, "a moment", json!("2030-01-01T00:00:00.000Z"), true)),
        _ => {}
    }
    if schema["format"].is_string() {
        cases.push(case(at, "of another format", json!("nonsense"), false));
        return cases;
    }
    let of = |count: u64| json!("s".repeat(usize::try_from(count).unwrap()));
    let least = schema["minLength"].as_u64().unwrap_or(0);
    cases.push(case(at, "of the shortest length", of(least), true));
    if least > 0 {
        cases.push(case(at, "too short", of(least - 1), false));
    }
    if let Some(most) = schema["maxLength"].as_u64() {
        cases.push(case(at, "of the longest length", of(most), true));
        cases.push(case(at, "too long", of(most + 1), false));
    }
    cases
}

fn of_integer(schema: &Value, at: &str) -> Vec<Case> {
    let mut cases =
        vec![case(at, "of another type", json!("x"), false), case(at, "with a fraction", json!(1.5), false)];
    let bound = |name: &str| schema[name].as_i64();
    if let Some(least) = bound("minimum") {
        cases.push(case(at, "the smallest", json!(least), true));
        cases.push(case(at, "below the smallest", json!(least - 1), false));
    }
    // Where no maximum is stated, the format is the promise.
    let widest = if schema["format"] == "int32" { i64::from(i32::MAX) } else { i64::MAX };
    let most = bound("maximum").unwrap_or(widest);
    cases.push(case(at, "the largest", json!(most), true));
    if most < widest {
        cases.push(case(at, "above the largest", json!(most + 1), false));
    }
    cases
}
