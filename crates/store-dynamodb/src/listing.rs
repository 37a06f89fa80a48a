//! Listings: start from the narrowest index that the filter names, read a bounded number of items, and let each item decide.
//!
//! Tasks whose ids were generated at their creation are listed by the table itself, in the order of its range key; all others
//! stand in an index. The two are merged.

use std::collections::VecDeque;

use ekiden_core::filter::TaskFilter;
use ekiden_core::id::Namespace;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_core::time::Timestamp;
use ekiden_store::shelf::{Listed, cursor_of, parse_cursor};
use ekiden_store::{ListOrder, Page, StoreError, TaskQuery};

use crate::client::Range;
use crate::codec::{self, Item, attributes as at, get_text, places, text};
use crate::shared::Shared;
use crate::tables::{GROUP_INDEX, LIST_INDEX, PLACE_INDEX, SESSION_INDEX};

/// A place in a listing.
type Place = (Timestamp, String);

/// Where entries come from.
enum Source {
    /// An index, by the names of its keys.
    Index { name: &'static str, keys: [&'static str; 2], value: String },
    /// The table itself: ids that sort by creation.
    Table,
}

/// A source, read as far as was needed.
struct Stream {
    source: Source,
    entries: VecDeque<(Place, Key)>,
    /// The range key that was read last, or behind which the page begins.
    bound: Option<String>,
    ended: bool,
}

impl Stream {
    fn behind(source: Source, after: Option<&Place>) -> Self {
        let bound = after.map(|(created_at, id)| match source {
            Source::Index { .. } => places::created_order(*created_at, id),
            Source::Table => generated_bound(*created_at, id),
        });
        Self { source, entries: VecDeque::new(), bound, ended: false }
    }
}

impl Shared {
    /// A page of tasks.
    pub(crate) async fn tasks(&self, query: &TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let after = after.map(|listed| (listed.created_at(), listed.id().into_owned()));
        let sources = sources(&query.filter).into_iter();
        let mut streams: Vec<Stream> = sources.map(|source| Stream::behind(source, after.as_ref())).collect();
        let (mut items, mut looked_at, mut last) = (Vec::new(), 0, None);
        loop {
            let want = (query.limit - items.len()).min(limits::PAGE_SCAN_MAX - looked_at);
            let entries = self.next_entries(query, &mut streams, want).await?;
            let Some((place, _)) = entries.last() else { break };
            (looked_at, last) = (looked_at + entries.len(), Some(place.clone()));
            let keys: Vec<Key> = entries.into_iter().map(|(_, key)| key).collect();
            let found = self.get(&keys).await?.into_iter().flatten();
            items.extend(found.filter(|found| matches(&query.filter, found)));
            if items.len() == query.limit || looked_at == limits::PAGE_SCAN_MAX {
                break;
            }
        }
        let mut more = false;
        for stream in &mut streams {
            self.fill(query, stream, 1).await?;
            more |= !stream.entries.is_empty();
        }
        let cursor = last.filter(|_| more).map(|(created_at, id)| cursor_of(&Listed::new(created_at, &id)));
        Ok(Page { items, cursor })
    }

    /// The next entries over all streams, in the listing's order.
    async fn next_entries(
        &self,
        query: &TaskQuery,
        streams: &mut [Stream],
        want: usize,
    ) -> Result<Vec<(Place, Key)>, StoreError> {
        let mut entries: Vec<(Place, Key)> = Vec::new();
        while entries.len() < want {
            for stream in streams.iter_mut() {
                self.fill(query, stream, want - entries.len()).await?;
            }
            let head = |stream: &Stream| stream.entries.front().map(|(place, _)| place.clone());
            let heads = streams.iter_mut().filter(|stream| !stream.entries.is_empty());
            let next = match query.order {
                ListOrder::OldestFirst => heads.min_by_key(|stream| head(stream)),
                ListOrder::NewestFirst => heads.max_by_key(|stream| head(stream)),
            };
            let Some((place, key)) = next.and_then(|stream| stream.entries.pop_front()) else { break };
            // A task that was made anew with another creation may stand in both for a moment.
            if entries.iter().all(|(_, known)| *known != key) {
                entries.push((place, key));
            }
        }
        Ok(entries)
    }

    /// Reads on if nothing is left.
    async fn fill(&self, query: &TaskQuery, stream: &mut Stream, want: usize) -> Result<(), StoreError> {
        while stream.entries.is_empty() && !stream.ended {
            let items = self.query(&self.range(query, stream), want + 1).await?;
            stream.ended = items.len() < want + 1;
            if let Some(last) = items.last() {
                stream.bound = get_text(last, stream.source.order()).map(str::to_owned);
            }
            stream.entries = items.iter().filter_map(|item| entry(&stream.source, item)).collect();
        }
        Ok(())
    }

    fn range(&self, query: &TaskQuery, stream: &Stream) -> Range {
        let forward = query.order == ListOrder::OldestFirst;
        let namespace = &query.filter.namespace;
        let range = match &stream.source {
            Source::Index { name, keys: [hash, order], value } => {
                let range = Range::of(&self.names.queue, Some(name), hash, text(value));
                let comparison = if forward { ">" } else { "<" };
                match &stream.bound {
                    Some(bound) => range.only(order, comparison, text(bound)),
                    None => range,
                }
            }
            Source::Table => {
                let [low, high] = places::GENERATED;
                let [low, high] = match (stream.bound.as_deref(), forward) {
                    (None, _) => [low, high],
                    (Some(bound), true) => [bound, high],
                    (Some(bound), false) => [low, bound],
                };
                let range = Range::of(&self.names.queue, None, at::NAMESPACE, text(namespace.as_str()));
                let after = stream.bound.as_deref().map(|bound| task_key(namespace, bound));
                Range { after, ..range.between(at::TASK_ID, low, high) }
            }
        };
        Range { forward, ..range }
    }
}

impl Source {
    /// The attribute that it is sorted by.
    const fn order(&self) -> &'static str {
        match self {
            Self::Index { keys: [_, order], .. } => order,
            Self::Table => at::TASK_ID,
        }
    }
}

/// The indexes that list what the filter asks for, the narrowest that there is.
fn sources(filter: &TaskFilter) -> Vec<Source> {
    let index = |name, keys, value| vec![Source::Index { name, keys, value }];
    let namespace = &filter.namespace;
    if let Some(runner) = &filter.held_by {
        index(PLACE_INDEX, [at::PLACE, at::PLACE_ORDER], places::held(namespace, runner))
    } else if let Some(group) = &filter.group {
        index(GROUP_INDEX, [at::GROUPED, at::CREATED_ORDER], places::group(namespace, group))
    } else if let Some(session) = &filter.session {
        index(SESSION_INDEX, [at::IN_SESSION, at::CREATED_ORDER], places::session(namespace, session))
    } else {
        let mut both = index(LIST_INDEX, [at::LISTED, at::CREATED_ORDER], namespace.to_string());
        both.push(Source::Table);
        both
    }
}

/// Where generated ids go on behind a place: those of the same moment sort by their text like any other id.
fn generated_bound(created_at: Timestamp, id: &str) -> String {
    let [first, next] = [created_at.as_millis(), created_at.as_millis() + 1].map(places::first_id);
    id.to_owned().clamp(first, next)
}

fn task_key(namespace: &Namespace, id: &str) -> Item {
    codec::key_of(&Key { kind: RecordKind::Task, namespace: namespace.clone(), name: id.into() })
}

/// The place of an item and its key, if the source lists it.
fn entry(source: &Source, item: &Item) -> Option<(Place, Key)> {
    let key = codec::parse_key(RecordKind::Task, item)?;
    match source {
        Source::Index { keys: [_, order], .. } => {
            let (created_at, id) = places::parse_created_order(get_text(item, order)?)?;
            Some(((created_at, id.to_owned()), key))
        }
        Source::Table => {
            let created_at = get_text(item, at::CREATED_AT).and_then(|text| Timestamp::parse(text).ok())?;
            let listed = places::sorts_by_id(created_at, &key.name) && item.contains_key(at::STATE);
            listed.then(|| ((created_at, key.name.to_string()), key))
        }
    }
}

fn matches(filter: &TaskFilter, found: &Versioned) -> bool {
    found.record.as_task().is_some_and(|task| filter.matches(task))
}
