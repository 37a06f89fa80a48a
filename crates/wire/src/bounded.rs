//! Lists and maps of requests, counted while they are read, so that a document with a million small items takes no more memory
//! than its maximum.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Deserializer;
use serde::de::{Deserialize, Error, MapAccess, SeqAccess, Visitor};

/// 1,000 tasks a batch: one call of the store takes about as many.
pub const BATCH_TASKS_MAX: usize = 1_000;

/// 16 MiB: 256 results of the largest size, or a thousand tasks of 16 KiB. Batches of larger ones are cut by their sender.
pub const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// 256 settlements a request: as many as a claim gives out.
pub const SETTLEMENTS_MAX: usize = 256;

/// What a list does with the first item beyond its maximum.
#[derive(Clone, Copy)]
enum Beyond {
    /// Refuses the document.
    Refuse,
    /// Keeps it, and drops those behind it: the part of the document that has the list is refused for its own reason, and the
    /// other parts are not.
    KeepOne,
}

struct Items<T> {
    most: usize,
    beyond: Beyond,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {}", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            match self.beyond {
                Beyond::Refuse if items.len() == self.most => {
                    return Err(A::Error::invalid_length(self.most + 1, &self));
                }
                Beyond::KeepOne if items.len() > self.most => {}
                _ => items.push(item),
            }
        }
        Ok(items)
    }
}

/// A list whose document is refused as soon as there are more than `MAX` items.
pub(crate) fn list<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Items { most: MAX, beyond: Beyond::Refuse, of: PhantomData })
}

/// The first `MAX` items of a list and one more, if there are more.
pub(crate) fn capped<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(Items { most: MAX, beyond: Beyond::KeepOne, of: PhantomData })
}

/// The same of a list that may be `null`.
pub(crate) fn capped_or_null<'de, D, T, const MAX: usize>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct OrNull<T>(Items<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for OrNull<T> {
        type Value = Option<Vec<T>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.expecting(f)
        }

        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_seq(self.0).map(Some)
        }
    }

    deserializer.deserialize_option(OrNull(Items { most: MAX, beyond: Beyond::KeepOne, of: PhantomData }))
}

/// The first `MAX` names of a map from texts to texts and one more, if there are more.
pub(crate) fn capped_texts<'de, D, const MAX: usize>(deserializer: D) -> Result<BTreeMap<Arc<str>, Arc<str>>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Texts(usize);

    impl<'de> Visitor<'de> for Texts {
        type Value = BTreeMap<Arc<str>, Arc<str>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut texts = BTreeMap::new();
            while let Some((name, text)) = entries.next_entry()? {
                if texts.len() <= self.0 {
                    texts.insert(name, text);
                }
            }
            Ok(texts)
        }
    }

    deserializer.deserialize_map(Texts(MAX))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use ekiden_core::limits;

    use super::*;
    use crate::{Claim, EnqueueBatch, Glance, NewTask, Question, Settle};

    /// So many items, with commas between them.
    fn many(count: usize, item: impl Fn(usize) -> String) -> String {
        (0..count).map(item).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn a_batch_is_refused_at_the_first_item_beyond_its_maximum() {
        let task = |_| r#"{"task_type":"k"}"#.to_owned();
        let settlement = |_| r#"{"task_id":"t","token":1,"verdict":{"outcome":"succeeded"}}"#.to_owned();
        let tasks = |count| format!(r#"{{"tasks":[{}"#, many(count, task));
        let settlements = |count| format!(r#"{{"settlements":[{}"#, many(count, settlement));
        for (most, text) in [(BATCH_TASKS_MAX, &tasks as &dyn Fn(usize) -> String), (SETTLEMENTS_MAX, &settlements)] {
            let read = |text: &str| match most {
                BATCH_TASKS_MAX => (
                    EnqueueBatch::glance(text).is_some(),
                    serde_json::from_str::<EnqueueBatch>(text).err().map(|error| error.to_string()),
                ),
                _ => (
                    Settle::glance(text).is_some(),
                    serde_json::from_str::<Settle>(text).err().map(|error| error.to_string()),
                ),
            };
            assert_eq!(read(&(text(most) + "]}")), (true, None));
            // What follows is no JSON: nobody has looked at it.
            let (glanced, error) = read(&(text(most + 1) + ", and so on"));
            assert!(!glanced);
            let error = error.unwrap();
            assert!(error.contains(&format!("expected a list of at most {most}")), "{error}");
        }
    }

    #[test]
    fn lists_inside_keep_one_more_than_their_maximum() {
        let far = 100_000;
        let ids = many(far, |at| format!(r#""t{at}""#));
        let mut labels = String::new();
        for at in 0..far {
            write!(labels, r#"{}"l{at}":"""#, if at == 0 { "" } else { "," }).unwrap();
        }
        let task: NewTask =
            serde_json::from_str(&format!(r#"{{"task_type":"k","depends_on":[{ids}],"labels":{{{labels}}}}}"#))
                .unwrap();
        assert_eq!((task.depends_on.len(), task.labels.len()), (limits::PARENTS_MAX + 1, limits::LABELS_MAX + 1));
        let text = format!(r#"{{"runner":"r","pools":[{ids}],"task_types":[{ids}]}}"#);
        assert!(Claim::glance(&text).is_none());
        let claim: Claim = serde_json::from_str(&text).unwrap();
        let pools = claim.pools.unwrap().len();
        assert_eq!((pools, claim.task_types.len()), (limits::CLAIM_POOLS_MAX + 1, limits::CLAIM_KINDS_MAX + 1));
        let question: Question =
            serde_json::from_str(&format!(r#"{{"id":"q","text":"?","choices":[{ids}]}}"#)).unwrap();
        assert_eq!(question.choices.len(), limits::QUESTION_CHOICES_MAX + 1);
        let claim: Claim = serde_json::from_str(r#"{"runner":"r","pools":null,"task_types":[]}"#).unwrap();
        assert_eq!(claim.pools, None);
    }
}
