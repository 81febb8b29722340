//! Effects on DMA mappings and DMA memory: the words of `dma.txt`.

use super::Resolver;
use crate::effect::DmaOp;

impl Resolver<'_, '_> {
    /// The effect that the words say, if they are of this sort.
    pub(super) fn dma(&mut self, _words: &[&str]) -> Option<DmaOp> {
        None
    }
}
