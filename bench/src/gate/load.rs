//! The load from outside: which program makes it, and what its figure is.

use crate::process;
use guardrail_vm::software::Software;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Connections at a time, as in the thesis.
const CONCURRENCY: &str = "16";
/// How much longer a load may take than the time that it was given.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bits per second of datagrams to the guest.
const FLOOD: &str = "300M";
/// Bytes of a datagram that fits an Ethernet frame.
const DATAGRAM: &str = "1460";

/// A load from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `ab` asks a web server for a page of 40 KB.
    Web,
    /// `memaslap` asks memcached.
    Memcached,
    /// `iperf3` streams.
    Stream {
        /// Whether it sends UDP instead of TCP.
        udp: bool,
        /// Whether the guest sends instead of receiving.
        guest_sends: bool,
    },
    /// `sockperf` sends a small message and waits for its echo.
    Request {
        /// Whether it sends UDP instead of TCP.
        udp: bool,
    },
}

impl Load {
    /// The unit of its figure; more is better.
    pub fn unit(self) -> &'static str {
        match self {
            Load::Web | Load::Memcached | Load::Request { .. } => "/s",
            Load::Stream { .. } => "Mbit/s",
        }
    }

    /// The guest's port, and whether UDP packets are sent to it besides TCP.
    pub fn port(self) -> (u16, bool) {
        match self {
            Load::Web => (80, false),
            Load::Memcached => (11211, false),
            Load::Stream { udp, .. } => (5201, udp),
            Load::Request { udp: false } => (11111, false),
            Load::Request { udp: true } => (11112, true),
        }
    }

    fn command(self, software: &Software, port: u16, seconds: u32) -> Result<Command, String> {
        let (program, words) = match self {
            Load::Web => {
                ("ab", format!("-q -t {seconds} -n 10000000 -c {CONCURRENCY} http://127.0.0.1:{port}/page"))
            }
            Load::Memcached => {
                ("memaslap", format!("-s 127.0.0.1:{port} -T 1 -c {CONCURRENCY} -t {seconds}s -w 1k -X 400"))
            }
            Load::Stream { udp, guest_sends } => {
                // A guest sends UDP as fast as it can. What the host sends is more than the guest can take,
                // but leaves it the processors.
                let limit = if guest_sends { "0" } else { FLOOD };
                let udp = if udp { format!(" -u -b {limit} -l {DATAGRAM}") } else { String::new() };
                let reverse = if guest_sends { " -R" } else { "" };
                ("iperf3", format!("-c 127.0.0.1 -p {port} -t {seconds} -J{reverse}{udp}"))
            }
            Load::Request { udp } => {
                let tcp = if udp { "" } else { " --tcp" };
                ("sockperf", format!("ping-pong -i 127.0.0.1 -p {port} -t {seconds} -m 64{tcp}"))
            }
        };
        let mut command = software.command(program).map_err(|error| error.to_string())?;
        command.args(words.split(' '));
        Ok(command)
    }

    /// Runs the load and returns its figure.
    pub fn give(self, software: &Software, port: u16, seconds: u32) -> Result<f64, String> {
        let mut command = self.command(software, port, seconds)?;
        let name = command.get_args().nth(2).unwrap_or_default().to_string_lossy().into_owned();
        process::dies_with_us(&mut command, libc::SIGKILL);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let text = process::finish(child, Duration::from_secs(seconds.into()) + PATIENCE, &name, &mut || {})?;
        self.figure(&text).ok_or_else(|| format!("{name} printed no figure: {}", process::last_words(&text)))
    }

    /// Reads the figure from the program's output.
    fn figure(self, text: &str) -> Option<f64> {
        match self {
            Load::Web => {
                // A load with failed requests is no measurement.
                let failed = number_after(text, "Failed requests:")?;
                let other = number_after(text, "Non-2xx responses:").unwrap_or(0.0);
                (failed == 0.0 && other == 0.0).then(|| number_after(text, "Requests per second:"))?
            }
            Load::Memcached => number_after(text, " TPS:"),
            Load::Stream { .. } => {
                let report: serde_json::Value = serde_json::from_str(text).ok()?;
                // Only received data counts.
                let received = &report["end"]["sum_received"]["bits_per_second"];
                received.as_f64().filter(|rate| *rate > 0.0).map(|rate| rate / 1e6)
            }
            Load::Request { .. } => {
                let line = text.lines().find(|line| line.contains("[Valid Duration]"))?;
                let received = number_after(line, "ReceivedMessages=")?;
                let seconds = number_after(line, "RunTime=")?;
                (seconds > 0.0 && received > 0.0).then_some(received / seconds)
            }
        }
    }
}

/// The number that follows a word.
fn number_after(text: &str, word: &str) -> Option<f64> {
    let rest = text.split_once(word)?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_the_programs_print() {
        let ab = "Complete requests:      80\nFailed requests:        0\nRequests per second:    95.17 [#/sec] (mean)\n";
        assert_eq!(Load::Web.figure(ab), Some(95.17));
        assert_eq!(Load::Web.figure(&ab.replace("requests:        0", "requests:        2")), None);
        assert_eq!(Load::Web.figure(""), None);
        let memaslap = "Run time: 5.0s Ops: 9000 TPS: 1800 Net_rate: 1.2M/s\n";
        assert_eq!(Load::Memcached.figure(memaslap), Some(1800.0));
        let stream = Load::Stream { udp: false, guest_sends: true };
        assert_eq!(stream.figure(r#"{"end": {"sum_received": {"bits_per_second": 2.5e8}}}"#), Some(250.0));
        assert_eq!(stream.figure(r#"{"error": "no"}"#), None);
        let sockperf =
            "sockperf: [Valid Duration] RunTime=2.000 sec; SentMessages=100; ReceivedMessages=99\n";
        assert_eq!(Load::Request { udp: true }.figure(sockperf), Some(49.5));
    }
}
