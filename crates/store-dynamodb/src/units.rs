//! What requests cost, as DynamoDB says with each answer. It asks for money by these units, so we count them.

use aws_sdk_dynamodb::types::ConsumedCapacity;

use crate::shared::{Shared, lock};

/// Read and write units, indexes included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Units {
    /// A strongly consistent read of 4 KB is one, an eventually consistent one a half.
    pub read: f64,
    /// A write of 1 KB is one, once for the item and once for each index entry that comes or goes.
    pub write: f64,
}

impl Shared {
    pub(crate) fn cost_of_read<'a>(&self, answers: impl Iterator<Item = &'a ConsumedCapacity>) {
        lock(&self.units).read += sum(answers);
    }

    pub(crate) fn cost_of_write<'a>(&self, answers: impl Iterator<Item = &'a ConsumedCapacity>) {
        lock(&self.units).write += sum(answers);
    }
}

fn sum<'a>(answers: impl Iterator<Item = &'a ConsumedCapacity>) -> f64 {
    answers.filter_map(ConsumedCapacity::capacity_units).sum()
}
