//! The few commands that the device's QEMU receives over its machine protocol.

use crate::error::{Context, Error, Result};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The time limit for a command; `stop` waits for the device's requests that are under way.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest line that is read.
const MAX_LINE: u64 = 1 << 20;

/// The connection to QEMU.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Negotiates with QEMU on this stream. QEMU answers when it has made its machine.
    pub fn new(stream: UnixStream) -> Result<Qmp> {
        stream.set_read_timeout(Some(LIMIT)).context("limit a wait")?;
        stream.set_write_timeout(Some(LIMIT)).context("limit a wait")?;
        let mut qmp = Qmp { reader: BufReader::new(stream) };
        qmp.until(|line| line.get("QMP").is_some())?;
        qmp.execute("qmp_capabilities", None)?;
        Ok(qmp)
    }

    /// Sends a command and waits until it is done. Where `event` is given, also waits for this event, which
    /// marks its end.
    pub fn execute(&mut self, command: &str, event: Option<&str>) -> Result<()> {
        self.say(command)?;
        let (mut returned, mut happened) = (false, event.is_none());
        self.until(|line| {
            returned |= line.get("return").is_some();
            happened |= event.is_some() && line.get("event").and_then(Value::as_str) == event;
            returned && happened
        })
    }

    /// Sends a command without waiting.
    pub fn say(&mut self, command: &str) -> Result<()> {
        let line = format!("{{\"execute\":\"{command}\"}}\n");
        self.reader.get_mut().write_all(line.as_bytes()).map_err(lost)
    }

    fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut line = String::new();
            let count = self.reader.by_ref().take(MAX_LINE).read_line(&mut line).map_err(lost)?;
            if count == 0 {
                return Err(Error::Qemu { what: "ended".into() });
            }
            let Ok(line) = serde_json::from_str::<Value>(&line) else { continue };
            if let Some(error) = line.get("error") {
                let text: String = error["desc"].as_str().unwrap_or("an error").chars().take(200).collect();
                return Err(Error::Qemu { what: format!("said: {text}") });
            }
            if wanted(&line) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::Qemu { what: format!("did not obey within {} s", LIMIT.as_secs()) });
            }
        }
    }
}

fn lost(error: std::io::Error) -> Error {
    Error::Qemu { what: format!("gave no answer: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_its_answer_and_its_event() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs
            .write_all(
                b"{\"QMP\":{}}\n{\"return\":{}}\n{\"return\":{}}\n{\"event\":\"X\"}\n{\"event\":\"RESET\"}\n",
            )
            .unwrap();
        let mut qmp = Qmp::new(ours).unwrap();
        qmp.execute("system_reset", Some("RESET")).unwrap();
        theirs.write_all(b"{\"error\":{\"desc\":\"no\"}}\n").unwrap();
        assert!(qmp.execute("stop", None).unwrap_err().to_string().ends_with("said: no"));
        drop(theirs);
        assert!(qmp.execute("stop", None).is_err());
    }
}
