//! The compressions that distributions use for kernels and modules, recognized by their first bytes.

use crate::error::KernelError;
use std::io::Read;

/// Most bytes of an unpacked kernel or module.
pub(crate) const LIMIT: u64 = 1 << 30;

/// Unpacks `data`; returns `None` for data in none of the known formats. `limit` is in bytes of the result.
///
/// It ignores trailing bytes after the compressed stream, since the kernel's build appends the unpacked size.
pub(crate) fn decompress(what: &str, data: &[u8], limit: u64) -> Result<Option<Vec<u8>>, KernelError> {
    let result = match data {
        [0x1f, 0x8b, ..] => read(flate2::read::GzDecoder::new(data), limit),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => liblzma::stream::Stream::new_stream_decoder(MEMORY_LIMIT, 0)
            .map_err(std::io::Error::from)
            .and_then(|stream| read(liblzma::read::XzDecoder::new_stream(data, stream), limit)),
        [0x5d, 0, 0, ..] => liblzma::stream::Stream::new_lzma_decoder(MEMORY_LIMIT)
            .map_err(std::io::Error::from)
            .and_then(|stream| read(liblzma::read::XzDecoder::new_stream(data, stream), limit)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            zstd::stream::read::Decoder::with_buffer(data).and_then(|mut decoder| {
                decoder.window_log_max(28)?;
                read(decoder.single_frame(), limit)
            })
        }
        [0x02, 0x21, 0x4c, 0x18, ..] => lz4_legacy(data, limit),
        _ => return Ok(None),
    };
    result
        .map(Some)
        .map_err(|error| KernelError::Decompress { what: what.to_owned(), detail: error.to_string() })
}

const MEMORY_LIMIT: u64 = 1 << 29;

fn read(reader: impl Read, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    reader.take(limit + 1).read_to_end(&mut out)?;
    if out.len() as u64 > limit {
        return Err(too_large(limit));
    }
    Ok(out)
}

fn too_large(limit: u64) -> std::io::Error {
    std::io::Error::other(format!("it unpacks to more than {} MiB", limit >> 20))
}

/// Unpacks the kernel's lz4: the legacy format, blocks of at most 8 MiB with a length before each.
fn lz4_legacy(data: &[u8], limit: u64) -> std::io::Result<Vec<u8>> {
    let bad = || std::io::Error::other("the lz4 data is damaged");
    let mut out = Vec::new();
    let mut at = 4;
    while let Some(len) = crate::bytes::u32_at(data, at) {
        at += 4;
        let Some(block) = crate::bytes::slice(data, at as u64, u64::from(len)) else {
            // This is not a block but the unpacked size that the kernel's build appends.
            break;
        };
        if len == 0 {
            break;
        }
        lz4_block(block, &mut out, limit)?.ok_or_else(bad)?;
        at += block.len();
    }
    if out.is_empty() { Err(bad()) } else { Ok(out) }
}

fn lz4_block(block: &[u8], out: &mut Vec<u8>, limit: u64) -> std::io::Result<Option<()>> {
    let start = out.len();
    let mut at = 0;
    loop {
        let Some(&token) = block.get(at) else { return Ok(None) };
        at += 1;
        let Some(literals) = lz4_length(block, &mut at, token >> 4) else { return Ok(None) };
        let Some(bytes) = crate::bytes::slice(block, at as u64, literals as u64) else { return Ok(None) };
        if (out.len() + literals) as u64 > limit {
            return Err(too_large(limit));
        }
        out.extend_from_slice(bytes);
        at += literals;
        if at == block.len() {
            return Ok(Some(()));
        }
        let Some(distance) = crate::bytes::u16_at(block, at) else { return Ok(None) };
        at += 2;
        let Some(length) = lz4_length(block, &mut at, token & 15) else { return Ok(None) };
        let distance = usize::from(distance);
        if distance == 0 || distance > out.len() - start {
            return Ok(None);
        }
        if (out.len() + length + 4) as u64 > limit {
            return Err(too_large(limit));
        }
        for _ in 0..length + 4 {
            out.push(out[out.len() - distance]);
        }
    }
}

fn lz4_length(block: &[u8], at: &mut usize, nibble: u8) -> Option<usize> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = *block.get(*at)?;
            *at += 1;
            length += usize::from(byte);
            if byte != 255 {
                break;
            }
        }
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn every_format_unpacks() {
        let text = b"hello hello hello hello hello kernel".repeat(50);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
        xz.write_all(&text).unwrap();
        let lzma_options = liblzma::stream::LzmaOptions::new_preset(1).unwrap();
        let lzma = liblzma::stream::Stream::new_lzma_encoder(&lzma_options).unwrap();
        let mut lzma = liblzma::write::XzEncoder::new_stream(Vec::new(), lzma);
        lzma.write_all(&text).unwrap();
        let packed = [
            gz.finish().unwrap(),
            xz.finish().unwrap(),
            lzma.finish().unwrap(),
            zstd::encode_all(&text[..], 3).unwrap(),
        ];
        for mut data in packed {
            assert_eq!(decompress("x", &data, 1 << 20).unwrap().as_deref(), Some(&text[..]));
            assert!(decompress("x", &data, 100).is_err());
            // The kernel's build appends the size.
            data.extend_from_slice(&(text.len() as u32).to_le_bytes());
            assert_eq!(decompress("x", &data, 1 << 20).unwrap().as_deref(), Some(&text[..]));
            assert!(decompress("x", &data[..data.len() / 2], 1 << 20).is_err());
        }
    }

    #[test]
    fn lz4_legacy_unpacks() {
        // Literals "abcd", then a match of 8 at distance 4, then the literals "z".
        let block = [0x44, b'a', b'b', b'c', b'd', 4, 0, 0x10, b'z'];
        let mut data = vec![0x02, 0x21, 0x4c, 0x18, block.len() as u8, 0, 0, 0];
        data.extend_from_slice(&block);
        data.extend_from_slice(&[13, 0, 0, 0]);
        assert_eq!(decompress("x", &data, 1000).unwrap().as_deref(), Some(&b"abcdabcdabcdz"[..]));
        assert!(decompress("x", &data[..14], 1000).is_err());
    }

    #[test]
    fn other_data_is_left_alone() {
        assert!(decompress("x", b"\x7fELF", 10).unwrap().is_none());
        assert!(decompress("x", b"", 10).unwrap().is_none());
    }
}
