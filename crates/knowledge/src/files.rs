//! The files under `knowledge/`, built into the program.

/// Path from the repository's root and text, folder by folder: `core` first, then by name.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The files of this name in all classes, with their paths from the repository's root.
pub(crate) fn named(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    FILES.iter().copied().filter(move |(path, _)| path.rsplit('/').next() == Some(name))
}
