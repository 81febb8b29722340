//! A disk whose sectors describe themselves. After a run, every sector is checked.
//!
//! The guest copies each block of a stream from its source to its destination, block by block, in order and
//! past all caches. The disk is intact if every sector holds its own content, before or after the copy. Of
//! each stream a first part is copied and the rest is not. A write that was misdirected, changed, lost or
//! late is detected.

use crate::error::{Context, Result};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// Blocks of each stream.
const BLOCKS: u64 = 96;
/// The streams: first sector, and sectors of a block.
const STREAMS: [Stream; 2] = [Stream { at: 0, block: 8 }, Stream { at: 8 * BLOCKS, block: 16 }];
/// Where the sources of all streams begin, behind all destinations.
const SOURCES: u64 = (8 + 16) * BLOCKS;
/// Sectors of the disk; no stream uses those behind the sources.
const SECTORS: u64 = 2 * SOURCES + 1536;
/// The number of wrong sectors that are described in words.
const MAX_EXAMPLES: usize = 8;

/// A part of the disk that is written in order.
struct Stream {
    at: u64,
    block: u64,
}

/// The judgment of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The number of copied blocks of each stream.
    pub copied: Vec<u64>,
    /// The number of blocks that are copied in part, by a write that was cut off in the middle.
    pub partial: u64,
    /// The number of wrong sectors and blocks.
    pub wrong: u64,
    /// Descriptions of the first of them.
    pub examples: Vec<String>,
}

impl Verdict {
    /// True where all blocks of each stream are copied.
    pub fn is_complete(&self) -> bool {
        self.copied.iter().all(|copied| *copied == BLOCKS)
    }

    fn wrong(&mut self, what: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(what());
        }
    }
}

/// Creates the image at `path`.
pub fn create(path: &Path) -> Result<()> {
    let mut file = BufWriter::new(File::create(path).context("create", path)?);
    for sector in 0..SECTORS {
        let (belongs, generation) = original(sector);
        file.write_all(&pattern(belongs, generation)).context("write", path)?;
    }
    file.flush().context("write", path)
}

/// The variables that describe the copies to the workload. For each stream they hold the block size in bytes,
/// and in blocks source, destination and count.
pub fn variables() -> Vec<(String, String)> {
    let mut variables = vec![("STREAMS".to_owned(), STREAMS.len().to_string())];
    for (number, stream) in STREAMS.iter().enumerate() {
        let values = [
            ("SIZE", stream.block * SECTOR),
            ("FROM", (SOURCES + stream.at) / stream.block),
            ("TO", stream.at / stream.block),
            ("COUNT", BLOCKS),
        ];
        variables.extend(values.map(|(name, value)| (format!("STREAM_{number}_{name}"), value.to_string())));
    }
    variables
}

/// Checks an image after a run.
pub fn verify(path: &Path) -> Result<Verdict> {
    let bytes = fs::read(path).context("read", path)?;
    let mut verdict = Verdict::default();
    if bytes.len() as u64 != SECTORS * SECTOR {
        verdict.wrong(|| format!("the disk has {} bytes, not {}", bytes.len(), SECTORS * SECTOR));
        return Ok(verdict);
    }
    let sector = |number: u64| &bytes[(number * SECTOR) as usize..][..SECTOR as usize];
    for number in SOURCES..SECTORS {
        let (belongs, generation) = original(number);
        if sector(number) != pattern(belongs, generation) {
            verdict.wrong(|| format!("sector {number}, which nobody writes, {}", holds(sector(number))));
        }
    }
    for stream in STREAMS {
        let mut first_missing = None;
        let mut copied = 0;
        for block in 0..BLOCKS {
            let (mut new, mut bad) = (0, false);
            for number in (0..stream.block).map(|offset| stream.at + block * stream.block + offset) {
                if sector(number) == pattern(number, 1) {
                    new += 1;
                } else if sector(number) != pattern(number, 0) {
                    bad = true;
                    verdict.wrong(|| format!("sector {number} {}", holds(sector(number))));
                }
            }
            let at = stream.at + block * stream.block;
            if new > 0
                && let Some(missing) = first_missing
            {
                verdict.wrong(|| {
                    format!("the block at sector {at} is copied, but not that at {missing} before it")
                });
            }
            match new {
                // The damage is reported already.
                _ if bad => {}
                0 => _ = first_missing.get_or_insert(at),
                all if all == stream.block => copied += 1,
                _ => {
                    verdict.partial += 1;
                    first_missing.get_or_insert(at);
                }
            }
        }
        verdict.copied.push(copied);
    }
    Ok(verdict)
}

/// The sector and generation whose content a sector has in the beginning.
fn original(sector: u64) -> (u64, u64) {
    match sector {
        SOURCES.. if sector < 2 * SOURCES => (sector - SOURCES, 1),
        _ => (sector, 0),
    }
}

/// The content of a sector: its number, and bytes that follow from it.
fn pattern(sector: u64, generation: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    let mut state = (sector << 8 | generation).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.as_chunks_mut::<8>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *word = state.to_le_bytes();
    }
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&sector.to_le_bytes());
    bytes[16..24].copy_from_slice(&generation.to_le_bytes());
    bytes
}

const MAGIC: &[u8; 8] = b"guardrai";

/// A description of the content of a wrong sector.
fn holds(bytes: &[u8]) -> String {
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
    if &bytes[..8] != MAGIC {
        return "holds no sector's content".to_owned();
    }
    let (sector, generation) = (number(8), number(16));
    let expected = pattern(sector, generation);
    match bytes.iter().zip(&expected).position(|(found, wanted)| found != wanted) {
        None => format!("holds what belongs into sector {sector}, generation {generation}"),
        Some(offset) => {
            format!(
                "holds what belongs into sector {sector}, generation {generation}, changed from byte {offset} on"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn put(path: &Path, sector: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(bytes, sector * SECTOR).unwrap();
    }

    fn copy(path: &Path, stream: usize, blocks: u64) {
        let Stream { at, block } = STREAMS[stream];
        (at..at + blocks * block).for_each(|sector| put(path, sector, &pattern(sector, 1)));
    }

    #[test]
    fn a_disk_is_intact_before_during_and_after_the_copy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        create(&path).unwrap();
        let verdict = verify(&path).unwrap();
        assert_eq!((verdict.wrong, &verdict.copied[..]), (0, &[0, 0][..]));
        copy(&path, 0, 7);
        copy(&path, 1, BLOCKS);
        let verdict = verify(&path).unwrap();
        assert_eq!((verdict.wrong, &verdict.copied[..]), (0, &[7, BLOCKS][..]));
        assert!(!verdict.is_complete());
        copy(&path, 0, BLOCKS);
        assert!(verify(&path).unwrap().is_complete());
    }

    #[test]
    fn every_way_to_damage_a_disk_shows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let examples = |sector: u64, bytes: &[u8]| {
            create(&path).unwrap();
            copy(&path, 0, 10);
            put(&path, sector, bytes);
            let verdict = verify(&path).unwrap();
            (verdict.wrong, verdict.partial, verdict.examples.join("; "))
        };
        let mut stamped = pattern(3, 1);
        stamped[100] ^= 1;
        let (wrong, _, text) = examples(3, &stamped);
        assert_eq!(
            (wrong, &text[..]),
            (1, "sector 3 holds what belongs into sector 3, generation 1, changed from byte 100 on")
        );
        let (wrong, _, text) = examples(400, &pattern(3, 1));
        assert_eq!((wrong, &text[..]), (1, "sector 400 holds what belongs into sector 3, generation 1"));
        let (wrong, _, text) = examples(SOURCES + 3, &[0; 512]);
        assert_eq!((wrong, &text[..]), (1, "sector 2307, which nobody writes, holds no sector's content"));
        let lost: Vec<u8> = (16..24).flat_map(|sector| pattern(sector, 0)).collect();
        let (wrong, _, text) = examples(16, &lost);
        assert_eq!((wrong, &text[..57]), (7, "the block at sector 24 is copied, but not that at 16 befo"));
        let (wrong, partial, _) = examples(79, &pattern(79, 0));
        assert_eq!((wrong, partial), (0, 1));
        File::options().write(true).open(&path).unwrap().set_len(512).unwrap();
        assert_eq!(verify(&path).unwrap().wrong, 1);
    }
}
