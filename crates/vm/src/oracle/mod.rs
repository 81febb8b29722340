//! Whether data survived: what the disk holds and what left the network card, judged without any checker.
//!
//! **Knows**: sectors and packets that describe themselves. **Must not know**: how they were written.

pub mod packets;
pub mod sectors;
