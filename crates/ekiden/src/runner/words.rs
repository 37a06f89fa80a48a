//! What attempts say when they end, on its way to the engine.

use std::sync::{Mutex, PoisonError};

use super::attempt::Word;
use crate::bell::Chime;

/// Words that nobody has taken yet. As many as there are attempts at most.
#[derive(Debug, Default)]
pub(super) struct Words {
    said: Mutex<Vec<Word>>,
    /// Rings with each word.
    pub(super) chime: Chime,
}

impl Words {
    pub(super) fn say(&self, word: Word) {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).push(word);
        self.chime.ring();
    }

    pub(super) fn take(&self) -> Vec<Word> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
