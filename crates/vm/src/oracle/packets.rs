//! The packets that left a network card, from QEMU's dump. After a run, every packet is checked.
//!
//! The guest sends streams of pings, each with its own size and content, and the driver sends beacons that
//! hold a count. What leaves is intact if every packet is one of those, unchanged, and each stream arrives in
//! order, without a gap. A packet that was changed, sent twice, lost or made of something else is detected.

use crate::error::{Context, Error, Result};
use std::fs;
use std::path::Path;

/// Packets of each stream.
const COUNT: u16 = 100;
/// The streams: bytes of payload, and the value of each byte.
const STREAMS: [Stream; 2] = [Stream { size: 200, fill: 0x67 }, Stream { size: 1000, fill: 0x72 }];
/// The source address of all packets.
const SOURCE: [u8; 4] = [10, 9, 0, 1];
/// The Ethernet type of a beacon, one reserved for experiments.
const BEACON: u16 = 0x88b5;
/// Words of a beacon; all hold the same value.
const BEACON_WORDS: usize = 12;
/// The number of wrong packets that are described in words.
const MAX_EXAMPLES: usize = 8;

struct Stream {
    size: usize,
    fill: u8,
}

/// The judgment of a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Packets of each stream that left.
    pub sent: Vec<u16>,
    /// Beacons that left.
    pub beacons: u32,
    /// The number of wrong packets.
    pub wrong: u64,
    /// Descriptions of the first wrong packets.
    pub examples: Vec<String>,
}

impl Verdict {
    /// True where all packets of each stream left.
    pub fn is_complete(&self) -> bool {
        self.sent.iter().all(|sent| *sent == COUNT)
    }
}

/// The variables that describe the streams to the workload.
pub fn variables() -> Vec<(String, String)> {
    let mut variables =
        vec![("STREAMS".to_owned(), STREAMS.len().to_string()), ("COUNT".to_owned(), COUNT.to_string())];
    for (number, stream) in STREAMS.iter().enumerate() {
        variables.push((format!("STREAM_{number}_SIZE"), stream.size.to_string()));
        variables.push((format!("STREAM_{number}_FILL"), format!("{:02x}", stream.fill)));
    }
    variables
}

/// Checks a dump after a run.
pub fn verify(path: &Path) -> Result<Verdict> {
    let bytes = fs::read(path).context("read", path)?;
    let mut verdict = Verdict { sent: vec![0; STREAMS.len()], ..Verdict::default() };
    let frames = frames(&bytes).ok_or_else(|| {
        Error::BadValue(format!("{} is no dump of a network: it does not begin as one", path.display()))
    })?;
    for (number, frame) in frames.iter().enumerate() {
        if let Err(why) = judge(frame, &mut verdict) {
            verdict.wrong += 1;
            if verdict.examples.len() < MAX_EXAMPLES {
                verdict.examples.push(format!("frame {}, of {} bytes, {why}", number + 1, frame.len()));
            }
        }
    }
    Ok(verdict)
}

/// The packets of a dump in the format of `pcap`; one that is cut off at the end has not left.
fn frames(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = bytes.strip_prefix(&0xa1b2_c3d4_u32.to_le_bytes())?.get(20..)?;
    let mut frames = Vec::new();
    while let Some((head, behind)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes(head[8..12].try_into().ok()?) as usize;
        let Some((frame, behind)) = behind.split_at_checked(length) else { break };
        frames.push(frame);
        rest = behind;
    }
    Some(frames)
}

/// Counts a packet, or describes what is wrong with it.
fn judge(frame: &[u8], verdict: &mut Verdict) -> std::result::Result<(), String> {
    let (head, body) = frame.split_at_checked(14).ok_or("is too short to be one")?;
    match u16::from_be_bytes([head[12], head[13]]) {
        BEACON => {
            let (words, rest) = body.as_chunks::<4>();
            let count = words.first().map_or(0, |word| u32::from_be_bytes(*word));
            if words.len() != BEACON_WORDS || !rest.is_empty() || words.iter().any(|word| word != &words[0]) {
                return Err("is a beacon that was changed".to_owned());
            }
            let last = std::mem::replace(&mut verdict.beacons, count);
            match last.checked_add(1) == Some(count) {
                true => Ok(()),
                false => Err(format!("is beacon {count} after beacon {last}")),
            }
        }
        0x0800 => packet(body, verdict),
        other => Err(format!("is of type {other:#06x}, which nobody sent")),
    }
}

/// Does the same for an IPv4 packet.
fn packet(bytes: &[u8], verdict: &mut Verdict) -> std::result::Result<(), String> {
    let (head, body) = bytes.split_at_checked(20).ok_or("is too short for a packet")?;
    if head[0] != 0x45
        || usize::from(u16::from_be_bytes([head[2], head[3]])) != bytes.len()
        || sum(head) != 0xffff
    {
        return Err("has a damaged head".to_owned());
    }
    let (message, payload) = body.split_at_checked(8).ok_or("is too short for a ping")?;
    // Busybox fills the code with the content as well.
    if head[9] != 1 || message[0] != 8 || head[12..16] != SOURCE || head[16..19] != [239, 0, 0] {
        return Err("is no ping that was sent".to_owned());
    }
    let number = usize::from(head[19]).wrapping_sub(1);
    let (stream, sent) =
        STREAMS.get(number).zip(verdict.sent.get_mut(number)).ok_or("is a ping of no stream")?;
    // The first four bytes are the time, which the checksum guards.
    if sum(body) != 0xffff
        || payload.len() != stream.size
        || payload[4..].iter().any(|byte| *byte != stream.fill)
    {
        return Err(format!("is a ping of stream {number} that was changed"));
    }
    let expected = *sent;
    match u16::from_be_bytes([message[6], message[7]]) {
        seq if seq == expected => *sent += 1,
        seq => {
            *sent = seq.wrapping_add(1);
            return Err(format!("is ping {seq} of stream {number}, not {expected}"));
        }
    }
    Ok(())
}

/// The Internet checksum's sum; 0xffff where the checksum fits.
fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ping(stream: usize, seq: u16) -> Vec<u8> {
        let Stream { size, fill } = STREAMS[stream];
        let mut frame = vec![0; 14];
        frame[12] = 8;
        let mut head = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 0, 1, 239, 0, 0, stream as u8 + 1];
        head[2..4].copy_from_slice(&(28 + size as u16).to_be_bytes());
        let check = !sum(&head);
        head[10..12].copy_from_slice(&check.to_be_bytes());
        let mut body = vec![8, 0, 0, 0, 1, 2];
        body.extend(seq.to_be_bytes());
        body.extend([9, 9, 9, 9]);
        body.extend(std::iter::repeat_n(fill, size - 4));
        let check = !sum(&body);
        body[2..4].copy_from_slice(&check.to_be_bytes());
        [frame, head, body].concat()
    }

    fn beacon(count: u32) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(BEACON.to_be_bytes());
        (0..BEACON_WORDS).for_each(|_| frame.extend(count.to_be_bytes()));
        frame
    }

    fn verdict(frames: &[Vec<u8>]) -> Verdict {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        bytes.extend([0; 20]);
        for frame in frames {
            bytes.extend([0; 8]);
            (0..2).for_each(|_| bytes.extend((frame.len() as u32).to_le_bytes()));
            bytes.extend(frame);
        }
        // A packet that was cut off has not left.
        bytes.extend([0; 9]);
        fs::write(&path, bytes).unwrap();
        verify(&path).unwrap()
    }

    #[test]
    fn what_was_sent_is_intact() {
        let good = verdict(&[beacon(1), ping(1, 0), ping(0, 0), beacon(2), ping(0, 1)]);
        assert_eq!((good.wrong, &good.sent[..], good.beacons), (0, &[2, 1][..], 2));
        assert!(!good.is_complete());
        let all: Vec<_> = (0..COUNT).flat_map(|seq| [ping(0, seq), ping(1, seq)]).collect();
        assert!(verdict(&all).is_complete());
    }

    #[test]
    fn every_way_to_damage_a_frame_shows() {
        let examples = |frames: &[Vec<u8>]| verdict(frames).examples.join("; ");
        let mut changed = ping(0, 0);
        changed[100] ^= 1;
        assert_eq!(examples(&[changed]), "frame 1, of 242 bytes, is a ping of stream 0 that was changed");
        let mut time = ping(0, 0);
        time[43] ^= 1;
        assert_eq!(examples(&[time]), "frame 1, of 242 bytes, is a ping of stream 0 that was changed");
        let short = ping(1, 0)[..500].to_vec();
        assert_eq!(examples(&[short]), "frame 1, of 500 bytes, has a damaged head");
        assert_eq!(
            examples(&[ping(0, 0), ping(0, 0), ping(0, 1)]),
            "frame 2, of 242 bytes, is ping 0 of stream 0, not 1"
        );
        assert_eq!(examples(&[ping(1, 1)]), "frame 1, of 1042 bytes, is ping 1 of stream 1, not 0");
        assert_eq!(examples(&[beacon(2)]), "frame 1, of 62 bytes, is beacon 2 after beacon 0");
        assert_eq!(examples(&[vec![1; 60]]), "frame 1, of 60 bytes, is of type 0x0101, which nobody sent");
        assert_eq!(examples(&[vec![1; 6]]), "frame 1, of 6 bytes, is too short to be one");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        fs::write(&path, b"no dump").unwrap();
        assert!(verify(&path).is_err());
    }
}
