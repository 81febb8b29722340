//! Cuts a device off: it loses DMA, interrupts and registers, and the guest sees it as unplugged.
//!
//! QEMU's test protocol (`-qtest`) writes the guest's ports from outside. While the vCPUs are stopped, the
//! device's command register is cleared through configuration mechanism #1. That disables bus mastership (and
//! with it DMA and message-signaled interrupts), registers and ports, and the interrupt line. Then the guest
//! continues and is notified.

use guardrail_trace::pci::PciAddress;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Ports of configuration mechanism #1 (PCI Local Bus Specification 3.0, 3.2.2.3.2).
const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
const ENABLE: u32 = 1 << 31;
/// Offset of the command register, and its bits: I/O space, memory space, bus master; interrupt disable.
const COMMAND: u32 = 4;
const SPACES_AND_MASTER: u32 = 7;
const INTERRUPT_DISABLE: u32 = 1 << 10;
/// The time limit for one command of QEMU.
const LIMIT: Duration = Duration::from_secs(5);

/// QEMU's test channel.
pub(crate) struct Ports<S> {
    stream: BufReader<S>,
}

impl Ports<UnixStream> {
    pub(crate) fn new(stream: UnixStream) -> io::Result<Ports<UnixStream>> {
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Ports { stream: BufReader::new(stream) })
    }
}

impl<S: io::Read + Write> Ports<S> {
    /// Ports that are reached over any stream.
    #[cfg(any(test, feature = "talk"))]
    pub(crate) fn of(stream: S) -> Ports<S> {
        Ports { stream: BufReader::new(stream) }
    }

    /// Cuts a device off. The vCPUs must be stopped, because they own the address port.
    pub(crate) fn cut(&mut self, device: PciAddress) -> io::Result<()> {
        let before = self.read("inl", CONFIG_ADDRESS)?;
        let register = ENABLE | u32::from(device.id()) << 8 | COMMAND;
        self.write("outl", CONFIG_ADDRESS, register)?;
        let command = self.read("inw", CONFIG_DATA)?;
        self.write("outw", CONFIG_DATA, command & !SPACES_AND_MASTER | INTERRUPT_DISABLE)?;
        let after = self.read("inw", CONFIG_DATA)?;
        self.write("outl", CONFIG_ADDRESS, before)?;
        match after & SPACES_AND_MASTER {
            0 => Ok(()),
            _ => Err(io::Error::other("the device kept its bus mastership")),
        }
    }

    fn read(&mut self, what: &str, port: u16) -> io::Result<u32> {
        let answer = self.ask(&format!("{what} {port:#x}\n"))?;
        let digits = answer.trim_start_matches("0x");
        u32::from_str_radix(digits, 16).map_err(|_| io::Error::other(format!("it answered '{answer}'")))
    }

    fn write(&mut self, what: &str, port: u16, value: u32) -> io::Result<()> {
        self.ask(&format!("{what} {port:#x} {value:#x}\n")).map(|_| ())
    }

    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(command.as_bytes())?;
        let mut line = String::new();
        io::Read::take(&mut self.stream, 4096).read_line(&mut line)?;
        match line.trim().strip_prefix("OK") {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(io::Error::other(format!("it answered '{}' to '{}'", line.trim(), command.trim()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as a device does whose command register holds 0x107.
    struct Machine {
        said: Vec<String>,
        answers: Vec<u8>,
        command: u32,
        stuck: bool,
    }

    impl io::Read for Machine {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(self.answers.len());
            buf[..n].copy_from_slice(&self.answers[..n]);
            self.answers.drain(..n);
            Ok(n)
        }
    }

    impl Write for Machine {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let line = String::from_utf8_lossy(buf).trim().to_owned();
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match words[..] {
                ["inl", _] => "OK 0x80001234\n".to_owned(),
                ["inw", _] => format!("OK {:#x}\n", self.command),
                ["outw", _, value] if !self.stuck => {
                    self.command = u32::from_str_radix(&value[2..], 16).unwrap();
                    "OK\n".to_owned()
                }
                _ => "OK\n".to_owned(),
            };
            self.said.push(line);
            self.answers.extend(answer.bytes());
            Ok(buf.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn ports(stuck: bool) -> Ports<Machine> {
        Ports::of(Machine { said: Vec::new(), answers: Vec::new(), command: 0x107, stuck })
    }

    #[test]
    fn the_command_register_is_cleared_and_the_address_port_restored() {
        let mut ports = ports(false);
        ports.cut(PciAddress { bus: 0, devfn: 0x18 }).unwrap();
        let machine = ports.stream.get_ref();
        assert_eq!(machine.command, 0x500);
        assert_eq!(machine.said[1], "outl 0xcf8 0x80001804");
        assert_eq!(machine.said.last().unwrap(), "outl 0xcf8 0x80001234");
    }

    #[test]
    fn a_device_that_does_not_let_go_is_told() {
        assert!(ports(true).cut(PciAddress { bus: 0, devfn: 0x18 }).is_err());
    }
}
