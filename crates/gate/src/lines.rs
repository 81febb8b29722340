//! What processes of a run say to each other over pipes: a JSON object a line.

use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver};

/// The longest line that is read, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// Sends a line; false where nobody listens.
pub fn send(to: &mut impl Write, what: &impl Serialize) -> bool {
    let Ok(mut line) = serde_json::to_vec(what) else { return false };
    line.push(b'\n');
    to.write_all(&line).and_then(|()| to.flush()).is_ok()
}

/// The next line; `None` at the end, or where the line cannot be parsed or is too long.
pub fn receive<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead) -> Option<T> {
    let mut line = Vec::new();
    from.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).ok()?;
    serde_json::from_slice(&line).ok()
}

/// The lines of a process as they come; the end of its output is the end of them. Without an output there are none.
pub fn listen<T>(output: Option<impl Read + Send + 'static>) -> Receiver<T>
where
    T: for<'a> Deserialize<'a> + Send + 'static,
{
    let (sender, lines) = mpsc::channel();
    if let Some(output) = output {
        std::thread::spawn(move || {
            let mut input = BufReader::new(output);
            while let Some(line) = receive(&mut input) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}
