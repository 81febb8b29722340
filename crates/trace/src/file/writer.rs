//! Writes a trace file.

use super::format::{
    CHUNK_BYTES, ChunkHeader, EndBlock, HEADER_BYTES, IndexEntry, MAGIC, MAX_SEGMENT_WORDS, Part,
    TRAILER_MAGIC, compressed_bound, encode_segment,
};
use super::{FORMAT, FileError, RunSummary, TraceMeta};
use crate::Segment;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The zstd level that keeps up with a running guest.
const LEVEL: i32 = 1;

/// Writes a trace file. Without [`finish`](Self::finish), readers treat the file as cut.
pub struct TraceWriter {
    path: PathBuf,
    file: File,
    offset: u64,
    packer: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    out: Vec<u8>,
    first_ticket: u64,
    last_ticket: Option<u64>,
    chunk_segments: u32,
    chunk_words: u64,
    end: EndBlock,
    poisoned: bool,
}

impl TraceWriter {
    /// Creates the file, or overwrites an existing one.
    pub fn create(path: impl AsRef<Path>, meta: &TraceMeta) -> Result<TraceWriter, FileError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|e| FileError::io("create", path, e))?;
        let packer = zstd::bulk::Compressor::new(LEVEL).map_err(|e| FileError::io("compress", path, e))?;
        let json = serde_json::to_vec(meta).map_err(|e| FileError::io("describe", path, e.into()))?;
        let mut preamble = MAGIC.to_vec();
        preamble.extend(FORMAT.to_le_bytes());
        preamble.extend((json.len() as u32).to_le_bytes());
        preamble.extend(crc32fast::hash(&json).to_le_bytes());
        preamble.extend(json);
        let mut writer = TraceWriter {
            path: path.to_owned(),
            file,
            offset: 0,
            packer,
            raw: Vec::with_capacity(CHUNK_BYTES + 4096),
            out: Vec::new(),
            first_ticket: 0,
            last_ticket: None,
            chunk_segments: 0,
            chunk_words: 0,
            end: EndBlock::default(),
            poisoned: false,
        };
        writer.write(&preamble)?;
        Ok(writer)
    }

    /// Bytes written to the file so far.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Adds a segment. Tickets must grow.
    pub fn segment(
        &mut self,
        ring: u32,
        ticket: u64,
        continuation: bool,
        words: &[u64],
    ) -> Result<(), FileError> {
        if words.len() > MAX_SEGMENT_WORDS {
            return Err(FileError::SegmentTooLong { ticket, words: words.len() });
        }
        if let Some(last) = self.last_ticket.filter(|&last| last >= ticket) {
            return Err(FileError::OutOfOrder { ticket, last });
        }
        if self.chunk_segments == 0 {
            self.first_ticket = ticket;
        }
        self.last_ticket = Some(ticket);
        self.chunk_segments += 1;
        self.chunk_words += words.len() as u64;
        self.raw.extend_from_slice(&ticket.to_le_bytes());
        self.raw.extend_from_slice(&encode_segment(ring, continuation, words.len()).to_le_bytes());
        let at = self.raw.len();
        self.raw.resize(at + words.len() * 8, 0);
        for (to, word) in self.raw[at..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        if self.raw.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    /// Adds a segment that a reader returned.
    pub fn add(&mut self, segment: &Segment<'_>) -> Result<(), FileError> {
        self.segment(segment.ring, segment.ticket, segment.continuation, segment.words)
    }

    /// Writes all added segments to the file, so that a concurrent reader finds them.
    pub fn flush(&mut self) -> Result<(), FileError> {
        let Some(last_ticket) = self.last_ticket.filter(|_| self.chunk_segments > 0) else {
            return Ok(());
        };
        self.out.resize(HEADER_BYTES + compressed_bound(self.raw.len()), 0);
        let packed = self
            .packer
            .compress_to_buffer(&self.raw, &mut self.out[HEADER_BYTES..])
            .map_err(|e| FileError::io("compress", &self.path, e))?;
        self.out.truncate(HEADER_BYTES + packed);
        let header = ChunkHeader {
            part: Part::Chunk,
            raw: self.raw.len() as u32,
            packed: packed as u32,
            crc: crc32fast::hash(&self.out[HEADER_BYTES..]),
            segments: self.chunk_segments,
            first_ticket: self.first_ticket,
            last_ticket,
            words: self.chunk_words,
        };
        self.out[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.end.index.push(IndexEntry { offset: self.offset, first_ticket: self.first_ticket });
        self.end.totals.chunks += 1;
        self.end.totals.segments += u64::from(self.chunk_segments);
        self.end.totals.words += self.chunk_words;
        self.raw.clear();
        self.chunk_segments = 0;
        self.chunk_words = 0;
        let out = std::mem::take(&mut self.out);
        let result = self.write(&out);
        self.out = out;
        result
    }

    /// Writes the index and the run's summary. This completes the file.
    pub fn finish(mut self, summary: RunSummary) -> Result<(), FileError> {
        self.flush()?;
        self.end.summary = summary;
        let end_offset = self.offset;
        let json =
            serde_json::to_vec(&self.end).map_err(|e| FileError::io("describe", &self.path, e.into()))?;
        let header = ChunkHeader {
            part: Part::End,
            raw: json.len() as u32,
            packed: json.len() as u32,
            crc: crc32fast::hash(&json),
            segments: 0,
            first_ticket: 0,
            last_ticket: 0,
            words: 0,
        };
        let mut out = header.encode().to_vec();
        out.extend(json);
        let mut trailer = end_offset.to_le_bytes().to_vec();
        trailer.extend(crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend(TRAILER_MAGIC);
        out.extend(trailer);
        self.write(&out)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        if self.poisoned {
            return Err(FileError::Poisoned { path: self.path.clone() });
        }
        if let Err(source) = self.file.write_all(bytes) {
            self.poisoned = true;
            return Err(FileError::write(&self.path, self.offset, source));
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }
}
