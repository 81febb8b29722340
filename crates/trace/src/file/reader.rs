//! Reads a trace file, one chunk at a time.

use super::format::{
    ChunkHeader, EndBlock, HEADER_BYTES, IndexEntry, MAGIC, MAX_META, MAX_SEGMENT_WORDS, PREAMBLE_BYTES,
    Part, TRAILER_BYTES, TRAILER_MAGIC, checksum_fits, decode_segment, u32_at, u64_at,
};
use super::{Ending, FORMAT, FileError, TraceMeta};
use crate::Segment;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Reads a trace file, with one chunk in memory at a time.
pub struct TraceReader<R = File> {
    path: PathBuf,
    input: R,
    length: u64,
    meta: TraceMeta,
    first_chunk: u64,
    /// Byte offset in the file where the next chunk begins.
    offset: u64,
    packed: Vec<u8>,
    raw: Vec<u8>,
    words: Vec<u64>,
    /// Index in `words` where the next segment begins.
    at: usize,
    last_ticket: Option<u64>,
    /// Ticket that [`seek`](Self::seek) asked for; segments before it are skipped.
    from: u64,
    ending: Option<Ending>,
}

impl TraceReader<File> {
    /// Opens a trace file and reads its metadata.
    pub fn open(path: impl AsRef<Path>) -> Result<TraceReader<File>, FileError> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| FileError::io("open", path, e))?;
        TraceReader::from_input(file, path)
    }
}

impl<R: Read + Seek> TraceReader<R> {
    /// Reads a trace from any seekable input; `path` only names it in errors.
    pub fn from_input(mut input: R, path: impl AsRef<Path>) -> Result<TraceReader<R>, FileError> {
        let path = path.as_ref().to_owned();
        let io = |e| FileError::io("read", &path, e);
        let length = input.seek(SeekFrom::End(0)).map_err(io)?;
        input.seek(SeekFrom::Start(0)).map_err(io)?;
        let mut preamble = [0; PREAMBLE_BYTES];
        let there = (length as usize).min(PREAMBLE_BYTES);
        input.read_exact(&mut preamble[..there]).map_err(io)?;
        let known = there.min(MAGIC.len());
        if there == 0 || preamble[..known] != MAGIC[..known] {
            return Err(FileError::NotATrace { path });
        }
        if there < PREAMBLE_BYTES {
            return Err(FileError::NoPreamble { path, offset: length });
        }
        let found = u32_at(&preamble, 8);
        if found > FORMAT {
            return Err(FileError::Newer { path, found, known: FORMAT });
        }
        let meta_len = u32_at(&preamble, 12);
        if found == 0 || meta_len > MAX_META {
            let what = "the preamble has impossible numbers";
            return Err(FileError::Corrupt { path, offset: 8, what });
        }
        let first_chunk = PREAMBLE_BYTES as u64 + u64::from(meta_len);
        if length < first_chunk {
            return Err(FileError::NoPreamble { path, offset: length });
        }
        let mut json = vec![0; meta_len as usize];
        input.read_exact(&mut json).map_err(io)?;
        let corrupt = |what| FileError::Corrupt { path: path.clone(), offset: PREAMBLE_BYTES as u64, what };
        if !checksum_fits(&json, u32_at(&preamble, 16)) {
            return Err(corrupt("the metadata does not fit its checksum"));
        }
        let meta = serde_json::from_slice(&json).map_err(|_| corrupt("the metadata cannot be understood"))?;
        Ok(TraceReader {
            path,
            input,
            length,
            meta,
            first_chunk,
            offset: first_chunk,
            packed: Vec::new(),
            raw: Vec::new(),
            words: Vec::new(),
            at: 0,
            last_ticket: None,
            from: 0,
            ending: None,
        })
    }

    /// Metadata that the recorder wrote at the head of the file.
    pub fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    /// How the file ends. `None` until [`next`](Self::next) has returned `None`.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The part of the file that was read, from 0 to 1.
    pub fn progress(&self) -> f64 {
        if self.length == 0 { 1.0 } else { self.offset as f64 / self.length as f64 }
    }

    /// Returns the next segment, or `None` at the end of a complete or cut file. A corrupt chunk gives
    /// an error, after all segments before it.
    #[allow(clippy::should_implement_trait)] // `next` lends its result, which an iterator cannot do.
    pub fn next(&mut self) -> Result<Option<Segment<'_>>, FileError> {
        if self.at_end()? {
            return Ok(None);
        }
        let at = self.at;
        let (ring, continuation, len) = decode_segment(self.words[at + 1]);
        let ticket = self.words[at];
        self.at = at + 2 + len;
        self.last_ticket = Some(ticket);
        let words = &self.words[at + 2..at + 2 + len];
        Ok(Some(Segment { ring, ticket, continuation, words }))
    }

    /// Reports whether no segment is left, and loads the next chunk where needed. Otherwise the next
    /// segment is at `self.at`; `load_chunk` has checked that segments fill the chunk exactly.
    pub(crate) fn at_end(&mut self) -> Result<bool, FileError> {
        loop {
            if self.at >= self.words.len() {
                if self.ending.is_some() || !self.load_chunk()? {
                    return Ok(true);
                }
                continue;
            }
            let ticket = self.words[self.at];
            if ticket >= self.from {
                return Ok(false);
            }
            self.last_ticket = Some(ticket);
            self.at += 2 + decode_segment(self.words[self.at + 1]).2;
        }
    }

    /// Makes [`next`](Self::next) continue at the first segment whose ticket is `ticket` or later.
    pub fn seek(&mut self, ticket: u64) -> Result<(), FileError> {
        let offset = match self.read_index() {
            Some(index) => {
                let after = index.partition_point(|e| e.first_ticket <= ticket);
                index.get(after.saturating_sub(1)).map_or(self.first_chunk, |e| e.offset)
            }
            None => self.scan(ticket)?,
        };
        self.offset = offset;
        self.words.clear();
        self.at = 0;
        self.from = ticket;
        self.last_ticket = None;
        self.ending = None;
        Ok(())
    }

    fn corrupt(&self, what: &'static str) -> FileError {
        FileError::Corrupt { path: self.path.clone(), offset: self.offset, what }
    }

    fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<(), FileError> {
        let mut read = |input: &mut R| -> io::Result<()> {
            input.seek(SeekFrom::Start(offset))?;
            input.read_exact(to)
        };
        read(&mut self.input).map_err(|e| FileError::io("read", &self.path, e))
    }

    /// Reads the header at `self.offset`. `None` where the file is cut inside the header or the part
    /// that it opens.
    fn header(&mut self) -> Result<Option<ChunkHeader>, FileError> {
        let left = self.length.saturating_sub(self.offset);
        if left < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.read_at(self.offset, &mut bytes)?;
        let header = ChunkHeader::decode(&bytes).map_err(|what| self.corrupt(what))?;
        let whole = left - HEADER_BYTES as u64 >= u64::from(header.packed);
        Ok(whole.then_some(header))
    }

    /// Reads the part that `header` opens, and checks its CRC-32.
    fn body(&mut self, header: &ChunkHeader) -> Result<(), FileError> {
        let mut packed = std::mem::take(&mut self.packed);
        packed.resize(header.packed as usize, 0);
        self.read_at(self.offset + HEADER_BYTES as u64, &mut packed)?;
        self.packed = packed;
        if !checksum_fits(&self.packed, header.crc) {
            return Err(self.corrupt("the chunk does not fit its checksum"));
        }
        Ok(())
    }

    /// Unpacks the next chunk. Returns false at the end of the file.
    fn load_chunk(&mut self) -> Result<bool, FileError> {
        self.words.clear();
        self.at = 0;
        let Some(header) = self.header()? else {
            self.ending = Some(Ending::Truncated { last_ticket: self.last_ticket, offset: self.offset });
            return Ok(false);
        };
        self.body(&header)?;
        if header.part == Part::End {
            let end: EndBlock = serde_json::from_slice(&self.packed)
                .map_err(|_| self.corrupt("the end block cannot be understood"))?;
            self.ending = Some(Ending::Complete { summary: end.summary, totals: end.totals });
            return Ok(false);
        }
        self.raw.resize(header.raw as usize, 0);
        let unpacked = zstd::bulk::decompress_to_buffer(&self.packed, &mut self.raw[..]);
        if unpacked.ok() != Some(header.raw as usize) {
            return Err(self.corrupt("the chunk cannot be unpacked"));
        }
        let word = |b: &[u8]| b.try_into().map_or(0, u64::from_le_bytes);
        self.words.extend(self.raw.chunks_exact(8).map(word));
        if let Err(what) = check_chunk(&header, &self.words, self.last_ticket) {
            self.words.clear();
            return Err(self.corrupt(what));
        }
        self.offset += HEADER_BYTES as u64 + u64::from(header.packed);
        Ok(true)
    }

    /// Reads the index of a complete file. `None` where the file has no index, or one that fails a
    /// check.
    fn read_index(&mut self) -> Option<Vec<IndexEntry>> {
        let at = self.length.checked_sub(TRAILER_BYTES as u64)?;
        let mut trailer = [0; TRAILER_BYTES];
        self.read_at(at, &mut trailer).ok()?;
        if trailer[12..] != TRAILER_MAGIC || !checksum_fits(&trailer[..8], u32_at(&trailer, 8)) {
            return None;
        }
        let before = std::mem::replace(&mut self.offset, u64_at(&trailer, 0));
        let index = self.read_end().ok().flatten();
        self.offset = before;
        let index = index?.index;
        // The file is not trusted: the index rows must lie inside it, in ascending order.
        let sane = index.iter().all(|e| (self.first_chunk..at).contains(&e.offset))
            && index.is_sorted_by(|a, b| a.offset < b.offset && a.first_ticket < b.first_ticket);
        sane.then_some(index)
    }

    fn read_end(&mut self) -> Result<Option<EndBlock>, FileError> {
        let Some(header) = self.header()?.filter(|h| h.part == Part::End) else {
            return Ok(None);
        };
        self.body(&header)?;
        Ok(serde_json::from_slice(&self.packed).ok())
    }

    /// Finds the offset of the first chunk whose last ticket is `ticket` or later, by reading chunk
    /// headers. Without such a chunk this is where the chunks end.
    fn scan(&mut self, ticket: u64) -> Result<u64, FileError> {
        self.offset = self.first_chunk;
        while let Some(header) = self.header()? {
            if header.part == Part::End || header.last_ticket >= ticket {
                break;
            }
            self.offset += HEADER_BYTES as u64 + u64::from(header.packed);
        }
        Ok(self.offset)
    }
}

/// Checks that segments fill the chunk exactly, and that its header describes them correctly.
fn check_chunk(header: &ChunkHeader, words: &[u64], before: Option<u64>) -> Result<(), &'static str> {
    let mut at = 0;
    let mut segments = 0;
    let mut total = 0;
    let mut last = before;
    while at < words.len() {
        let [ticket, shape] = *words[at..].first_chunk().ok_or("a segment is cut inside the chunk")?;
        let (_, _, len) = decode_segment(shape);
        if len > MAX_SEGMENT_WORDS || len > words.len() - at - 2 {
            return Err("a segment is longer than its chunk");
        }
        if last.is_some_and(|last| last >= ticket) || segments == 0 && ticket != header.first_ticket {
            return Err("the segments are out of order");
        }
        last = Some(ticket);
        segments += 1;
        total += len as u64;
        at += 2 + len;
    }
    if segments != header.segments || total != header.words || last != Some(header.last_ticket) {
        return Err("the chunk does not hold what its header says");
    }
    Ok(())
}
