//! Effects on locks and on the order of events: the words of `sync.txt`.

use super::Resolver;
use crate::effect::SyncOp;

impl Resolver<'_, '_> {
    /// The effect that the words say, if they are of this sort.
    pub(super) fn sync(&self, _words: &[&str]) -> Option<SyncOp> {
        None
    }
}
