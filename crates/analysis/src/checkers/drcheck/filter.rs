//! A filter that quickly rules most words out of a small set.

/// A bit for each hash of a word's address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WordFilter([u64; 16]);

impl WordFilter {
    #[inline]
    fn place(word: u64) -> (usize, u64) {
        let hash = (word >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        ((hash >> 6) as usize & 15, 1 << (hash & 63))
    }

    /// Whether the set may have the word.
    #[inline]
    pub fn may_have(&self, word: u64) -> bool {
        let (at, bit) = WordFilter::place(word);
        self.0[at] & bit != 0
    }

    /// Adds a word.
    pub fn add(&mut self, word: u64) {
        let (at, bit) = WordFilter::place(word);
        self.0[at] |= bit;
    }
}
