//! Binary encoding of the file's parts, except those that are JSON.

use super::{RunSummary, Totals};
use serde::{Deserialize, Serialize};

pub(super) const MAGIC: [u8; 8] = *b"GRDTRC\r\n";
pub(super) const TRAILER_MAGIC: [u8; 8] = *b"GRDEND\r\n";
pub(super) const PREAMBLE_BYTES: usize = 20;
pub(super) const TRAILER_BYTES: usize = 20;
pub(super) const HEADER_BYTES: usize = 64;

/// The writer writes a chunk when its segments reach this many bytes.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
/// Most words in one segment. Rings hold no longer ones.
pub(super) const MAX_SEGMENT_WORDS: usize = 1 << 21;
/// Most bytes that a chunk unpacks to: an almost full chunk plus the longest segment.
pub(super) const MAX_RAW: usize = CHUNK_BYTES + (MAX_SEGMENT_WORDS + 2) * 8;
/// Most bytes of metadata that a reader accepts.
pub(super) const MAX_META: u32 = 16 << 20;
/// Most bytes of an end block that a reader accepts: the index of about 100 TB of chunks.
pub(super) const MAX_END: u32 = 256 << 20;

const CHUNK_KIND: u32 = u32::from_le_bytes(*b"CHNK");
const END_KIND: u32 = u32::from_le_bytes(*b"ENDB");

/// Most bytes that `raw` bytes take when compressed: zstd's own bound, rounded up.
pub(super) fn compressed_bound(raw: usize) -> usize {
    raw + raw / 128 + 1024
}

/// The part that a header opens: a chunk or the end block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Chunk,
    End,
}

/// The header of a chunk or of the end block: eight 32-bit and four 64-bit numbers. The last 32-bit
/// number is the CRC-32 of the other 60 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    pub(super) part: Part,
    /// Bytes after unpacking.
    pub(super) raw: u32,
    /// Bytes in the file, compressed.
    pub(super) packed: u32,
    /// CRC-32 of the compressed bytes.
    pub(super) crc: u32,
    pub(super) segments: u32,
    pub(super) first_ticket: u64,
    pub(super) last_ticket: u64,
    pub(super) words: u64,
}

impl ChunkHeader {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind = match self.part {
            Part::Chunk => CHUNK_KIND,
            Part::End => END_KIND,
        };
        let mut bytes = [0; HEADER_BYTES];
        for (i, n) in [kind, self.raw, self.packed, self.crc, self.segments, 0].into_iter().enumerate() {
            bytes[i * 4..i * 4 + 4].copy_from_slice(&n.to_le_bytes());
        }
        for (i, n) in [self.first_ticket, self.last_ticket, self.words].into_iter().enumerate() {
            bytes[24 + i * 8..32 + i * 8].copy_from_slice(&n.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<ChunkHeader, &'static str> {
        let part = match u32_at(bytes, 0) {
            CHUNK_KIND => Part::Chunk,
            END_KIND => Part::End,
            _ => return Err("no chunk begins here"),
        };
        if !checksum_fits(&bytes[..60], u32_at(bytes, 60)) {
            return Err("the chunk's header does not fit its checksum");
        }
        let header = ChunkHeader {
            part,
            raw: u32_at(bytes, 4),
            packed: u32_at(bytes, 8),
            crc: u32_at(bytes, 12),
            segments: u32_at(bytes, 16),
            first_ticket: u64_at(bytes, 24),
            last_ticket: u64_at(bytes, 32),
            words: u64_at(bytes, 40),
        };
        let fits = match part {
            Part::Chunk => {
                header.raw as usize <= MAX_RAW
                    && header.raw.is_multiple_of(8)
                    && header.packed as usize <= compressed_bound(header.raw as usize)
                    && header.segments > 0
                    && header.first_ticket <= header.last_ticket
            }
            Part::End => header.packed <= MAX_END && header.raw <= MAX_END,
        };
        fits.then_some(header).ok_or("the chunk's header has impossible numbers")
    }
}

/// One row of the index: the position of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    pub(super) offset: u64,
    pub(super) first_ticket: u64,
}

/// Content of the end block, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EndBlock {
    pub(super) summary: RunSummary,
    pub(super) totals: Totals,
    pub(super) index: Vec<IndexEntry>,
}

const FLAG_CONTINUATION: u64 = 1;

/// Encodes the second word of a segment in a chunk.
pub(super) fn encode_segment(ring: u32, continuation: bool, words: usize) -> u64 {
    u64::from(ring & 0xffff) << 48 | (u64::from(continuation) * FLAG_CONTINUATION) << 40 | words as u64
}

/// Returns ring, continuation flag and number of words.
pub(super) fn decode_segment(word: u64) -> (u32, bool, usize) {
    let words = word & ((1 << 40) - 1);
    ((word >> 48) as u32, word >> 40 & FLAG_CONTINUATION != 0, words as usize)
}

/// Checks a CRC-32. Fuzzers skip the check, because random input never passes it.
#[allow(unexpected_cfgs)] // Fuzzers define it.
pub(super) fn checksum_fits(bytes: &[u8], sum: u32) -> bool {
    cfg!(fuzzing) || crc32fast::hash(bytes) == sum
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}
