//! Pictures as a browser takes them: PNG with 8 bits a color, not interlaced.

use flate2::read::ZlibDecoder;
use std::io::Read;

/// The most bytes that a picture is unpacked to.
const MOST: u64 = 256 << 20;

/// A picture.
pub struct Picture {
    /// Its width, in pixels.
    pub width: usize,
    /// Its height, in pixels.
    pub height: usize,
    /// Red, green and blue of each pixel, row by row.
    pub pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Decodes a PNG file; `None` for one of another kind.
    pub fn decode(bytes: &[u8]) -> Option<Picture> {
        let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n")?;
        let (mut packed, mut size, mut channels) = (Vec::new(), (0, 0), 0);
        while rest.len() >= 12 {
            let length = number(rest)?;
            let (name, data) = (&rest[4..8], rest.get(8..8 + length)?);
            match name {
                b"IHDR" => {
                    size = (number(data)?, number(&data[4..])?);
                    channels = match data.get(8..13)? {
                        [8, 2, 0, 0, 0] => 3,
                        [8, 6, 0, 0, 0] => 4,
                        _ => return None,
                    };
                }
                b"IDAT" => packed.extend_from_slice(data),
                _ => {}
            }
            rest = rest.get(12 + length..)?;
        }
        let mut lines = Vec::new();
        ZlibDecoder::new(&*packed).take(MOST).read_to_end(&mut lines).ok()?;
        let (width, height) = size;
        let mut before = vec![0; width * channels];
        let mut pixels = Vec::new();
        for line in lines.chunks_exact(width.checked_mul(channels)?.checked_add(1)?).take(height) {
            let mut line = line.to_vec();
            let filter = line.remove(0);
            unfilter(filter, &mut line, &before, channels)?;
            pixels.extend(line.chunks_exact(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
            before = line;
        }
        (pixels.len() == width * height).then_some(Picture { width, height, pixels })
    }

    /// The color of a pixel.
    pub fn at(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }

    /// The part of pixels that have another color than the first, in the rows of a range.
    pub fn drawn(&self, rows: std::ops::Range<usize>) -> f64 {
        let part = &self.pixels[rows.start * self.width..rows.end * self.width];
        part.iter().filter(|pixel| **pixel != self.pixels[0]).count() as f64 / part.len().max(1) as f64
    }
}

fn number(bytes: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize)
}

/// Takes back what a line was filtered with, which is relative to the pixels at the left and above.
fn unfilter(filter: u8, line: &mut [u8], above: &[u8], channels: usize) -> Option<()> {
    for at in 0..line.len() {
        let left = if at < channels { 0 } else { line[at - channels] };
        let corner = if at < channels { 0 } else { above[at - channels] };
        let guess = match filter {
            0 => 0,
            1 => left,
            2 => above[at],
            3 => u16::midpoint(left.into(), above[at].into()) as u8,
            4 => nearest(left, above[at], corner),
            _ => return None,
        };
        line[at] = line[at].wrapping_add(guess);
    }
    Some(())
}

/// The one of three values that is nearest to the plane through them.
fn nearest(left: u8, above: u8, corner: u8) -> u8 {
    let plane = i32::from(left) + i32::from(above) - i32::from(corner);
    let far = |value: u8| (plane - i32::from(value)).abs();
    if far(left) <= far(above) && far(left) <= far(corner) {
        left
    } else if far(above) <= far(corner) {
        above
    } else {
        corner
    }
}
