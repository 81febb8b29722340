//! Getting what a run needs: packages from Debian's mirrors, unpacked into the cache.
//!
//! **Knows**: apt, `dpkg`, the cache folder, programs for the guest. **Must not know**: what a package is used for.

pub(crate) mod apt;
pub mod cache;
pub mod carried;
pub(crate) mod group;
pub(crate) mod owned;
pub mod packages;
mod pins;
pub mod software;
pub mod sources;

#[cfg(test)]
mod tests;
