//! A device model in a stock QEMU of its own, which the server drives from outside.

use super::command::{self, DOORBELL_SLOT, Options, SLOT};
use super::doorbell::{self, Doorbell};
use super::pci::{self, Capabilities};
use super::qmp::Qmp;
use super::qtest::{Change, Qtest};
use super::{Device, Interrupt, Layout, Operations};
use crate::error::{Context, Error, Result};
use crate::memory::Memory;
use crate::policy::Space;
use crate::sys;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The interrupt that all PCI lines are routed to.
const LINE: u32 = 11;
/// Ports of configuration mechanism #1.
const CONFIG_ADDRESS: u64 = 0xcf8;
const CONFIG_DATA: u64 = 0xcfc;
/// How long QEMU may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The QEMU process and its standard error; dropping it ends it.
#[derive(Debug)]
struct Process {
    child: Child,
    words: Option<JoinHandle<String>>,
}

impl Process {
    /// Ends the process and returns the last lines of its standard error.
    fn end(&mut self) -> String {
        sys::kill_group(&mut self.child);
        let words = self.words.take().and_then(|words| words.join().ok()).unwrap_or_default();
        let speaks = |line: &&str| !line.trim().is_empty() && !line.contains(" warning: ");
        words.lines().rev().find(speaks).unwrap_or("without a word").trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        sys::kill_group(&mut self.child);
    }
}

/// A device in a QEMU of its own.
#[derive(Debug)]
pub struct QemuDevice {
    qtest: Qtest,
    qmp: Qmp,
    doorbell: Doorbell,
    process: Process,
    layout: Layout,
    capabilities: Capabilities,
    /// The addresses of the device's memory and ports; dropped when the guest may have changed them.
    places: Option<[Option<(u64, bool)>; 6]>,
    /// True where the device uses the table of interrupts.
    table_on: bool,
    operations: Operations,
}

impl QemuDevice {
    /// Starts the device's QEMU. Call it on a thread that lives as long as the device: QEMU ends with that
    /// thread.
    ///
    /// `memory` is the guest's RAM of `mib` MiB; `folder` receives a small file.
    pub fn start(options: &Options, memory: &Memory, mib: u32, folder: &Path) -> Result<QemuDevice> {
        let rom = folder.join("device-rom.bin");
        fs::write(&rom, command::rom()).context("write the device's ROM")?;
        let pair = || UnixStream::pair().context("make a socket for QEMU");
        let (qtest, qtest_of_qemu) = pair()?;
        let (qmp, qmp_of_qemu) = pair()?;
        let (bell, bell_of_qemu) = pair()?;
        let doorbell = Doorbell::serve(bell)?;
        let [qtest_fd, qmp_fd, bell_fd] =
            [&qtest_of_qemu, &qmp_of_qemu, &bell_of_qemu].map(AsRawFd::as_raw_fd);
        let channels = [("qtest", qtest_fd), ("qmp", qmp_fd), ("doorbell", bell_fd)];
        let mut command = options.command(&memory.path(), mib, &rom, channels)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        sys::bind_child(&mut command, vec![qtest_fd, qmp_fd, bell_fd, memory.number()]);
        options.make_trace()?;
        let jail = options.whole_reach().reads(&rom).more_memory(u64::from(mib) << 20);
        let mut child = guardrail_jail::spawn(&mut command, &jail)
            .map_err(|error| Error::Qemu { what: format!("cannot be started: {error}") })?;
        drop((qtest_of_qemu, qmp_of_qemu, bell_of_qemu));
        let words = child.stderr.take().map(listen);
        let mut process = Process { child, words };
        let ready = Qmp::new(qmp).and_then(|qmp| Ok((qmp, Qtest::new(qtest)?)));
        let _ = fs::remove_file(&rom);
        let (qmp, qtest) = match ready {
            Ok(both) => both,
            Err(Error::Qemu { what }) => {
                return Err(Error::Qemu { what: format!("{what}: {}", process.end()) });
            }
            Err(error) => return Err(error),
        };
        let mut device = QemuDevice {
            qtest,
            qmp,
            doorbell,
            process,
            layout: Layout::default(),
            capabilities: Capabilities::default(),
            places: None,
            table_on: false,
            operations: Operations::default(),
        };
        device.qtest.intercept("ioapic")?;
        device.prepare_machine()?;
        device.explore()?;
        Ok(device)
    }

    /// Sets up the machine, as is necessary after each reset.
    fn prepare_machine(&mut self) -> Result<()> {
        // All four lines of the bus are routed to one interrupt.
        self.config_write(1, 0x60, 4, LINE * 0x0101_0101)?;
        self.config_write(DOORBELL_SLOT, pci::BAR, 4, doorbell::BASE)?;
        self.config_write(DOORBELL_SLOT, pci::COMMAND, 2, pci::MEMORY.into())?;
        self.places = None;
        self.table_on = false;
        Ok(())
    }

    /// Finds out the parts of the device.
    fn explore(&mut self) -> Result<()> {
        let mut config = [0; pci::CONFIG];
        for at in (0..pci::CONFIG).step_by(4) {
            let value = self.config_read(SLOT, at as u64, 4)?;
            config[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let bad = |why: &str| Err(Error::Device { why: why.to_owned() });
        if config[..2] == [0xff, 0xff] {
            return bad("it is no PCI device, and only those can stand elsewhere");
        }
        if config[0xe] & 0x7f != 0 {
            return bad("it is a bridge");
        }
        self.capabilities = Capabilities::of(&config);
        let mut bars = [0; 6];
        for (index, bar) in bars.iter_mut().enumerate() {
            let at = pci::BAR + 4 * index as u64;
            let before = self.config_read(SLOT, at, 4)?;
            self.config_write(SLOT, at, 4, u32::MAX)?;
            *bar = self.config_read(SLOT, at, 4)?;
            self.config_write(SLOT, at, 4, before)?;
        }
        self.layout = Layout {
            bars: pci::sizes(bars),
            config: pci::CONFIG as u32,
            line: config[0x3d] != 0,
            msi: self.capabilities.msi.map_or(0, |msi| msi.vectors),
            msi_x: self.capabilities.msi_x.map_or(0, |table| table.vectors),
        };
        if self.layout.msi_x > doorbell::VECTORS {
            return bad(&format!(
                "it has {} interrupts, and the gate forwards {}; have the device make do with fewer",
                self.layout.msi_x,
                doorbell::VECTORS
            ));
        }
        Ok(())
    }

    fn select(&mut self, slot: u32, at: u64) -> Result<u64> {
        self.operations.config += 1;
        let address = 0x8000_0000 | u64::from(slot) << 11 | at & 0xfc;
        self.qtest.write(true, CONFIG_ADDRESS, 4, address)?;
        Ok(CONFIG_DATA + (at & 3))
    }

    fn config_read(&mut self, slot: u32, at: u64, size: usize) -> Result<u32> {
        let port = self.select(slot, at)?;
        Ok(self.qtest.read(true, port, size)? as u32)
    }

    fn config_write(&mut self, slot: u32, at: u64, size: usize, value: u32) -> Result<()> {
        let port = self.select(slot, at)?;
        self.qtest.write(true, port, size, value.into())
    }

    /// The address that the guest has given to this register's memory or ports.
    fn place(&mut self, bar: u8) -> Result<Option<(u64, bool)>> {
        let places = match self.places {
            Some(places) => places,
            None => {
                let command = self.config_read(SLOT, pci::COMMAND, 2)? as u16;
                let mut bars = [0; 6];
                for (index, bar) in bars.iter_mut().enumerate() {
                    *bar = self.config_read(SLOT, pci::BAR + 4 * index as u64, 4)?;
                }
                *self.places.insert(pci::places(command, bars))
            }
        };
        Ok(places.get(usize::from(bar)).copied().flatten())
    }

    /// Directs the interrupts of the MSI capability to the doorbell.
    fn aim_msi(&mut self, msi: pci::Msi) -> Result<()> {
        self.config_write(SLOT, msi.at + 4, 4, doorbell::ADDRESS)?;
        if msi.wide {
            self.config_write(SLOT, msi.at + 8, 4, 0)?;
        }
        self.config_write(SLOT, msi.data(), 2, 0)?;
        if msi.masks {
            self.config_write(SLOT, msi.data() + 4, 4, 0)?;
        }
        Ok(())
    }

    /// Directs the interrupts of the table to the doorbell. The guest's own table is in the driver VM.
    fn aim_table(&mut self, table: pci::MsiX) -> Result<()> {
        let Some((base, false)) = self.place(table.bar as u8)? else { return Ok(()) };
        let entries: Vec<u8> = (0..table.vectors)
            .flat_map(|vector| [doorbell::ADDRESS, 0, vector, 0])
            .flat_map(u32::to_le_bytes)
            .collect();
        self.operations.table += u64::from(table.vectors) * 4;
        self.qtest.write_bytes(base + table.table, &entries)
    }

    /// Passes a write to configuration space, except for the bytes that the gate owns.
    fn config_pass(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let byte = |at: u64| {
            let index = at.checked_sub(offset)?;
            bytes.get(usize::try_from(index).ok()?).copied()
        };
        if let Some(msi) = self.capabilities.msi
            && byte(msi.at + 2).is_some_and(|control| control & 1 != 0)
        {
            self.aim_msi(msi)?;
        }
        if let Some(table) = self.capabilities.msi_x
            && let Some(control) = byte(table.at + 3)
        {
            self.table_on = control & 0x80 != 0;
            if self.table_on {
                self.aim_table(table)?;
            }
        }
        self.places = None;
        let mut at = offset;
        while let Some(rest) = bytes.get((at - offset) as usize..).filter(|rest| !rest.is_empty()) {
            if self.capabilities.msi.is_some_and(|msi| msi.owns(at)) {
                at += 1;
                continue;
            }
            // The size is the largest that alignment allows. It ends before the gate's bytes, which are
            // aligned to four.
            let size = match (at % 4, rest.len()) {
                (0, 4..) => 4,
                (0 | 2, 2..) => 2,
                _ => 1,
            };
            let mut value = [0; 4];
            value[..size].copy_from_slice(&rest[..size]);
            self.config_write(SLOT, at, size, u32::from_le_bytes(value))?;
            at += size as u64;
        }
        Ok(())
    }

    /// Lets QEMU end by itself, so that it closes its files in order; kills it after a time limit.
    pub fn stop(mut self) {
        if self.qmp.say("quit").is_ok() {
            let deadline = Instant::now() + END_LIMIT;
            while Instant::now() < deadline && matches!(self.process.child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// The number of the process, so that a test can end it.
    pub fn process(&self) -> u32 {
        self.process.child.id()
    }
}

impl Device for QemuDevice {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn read(&mut self, space: Space, offset: u64, into: &mut [u8]) -> Result<()> {
        into.fill(0xff);
        match space {
            Space::Config => {
                let mut done = 0;
                while done < into.len() {
                    let at = offset + done as u64;
                    let size = match (at % 4, into.len() - done) {
                        (0, 4..) => 4,
                        (0 | 2, 2..) => 2,
                        _ => 1,
                    };
                    let value = self.config_read(SLOT, at, size)?.to_le_bytes();
                    into[done..done + size].copy_from_slice(&value[..size]);
                    done += size;
                }
            }
            Space::Bar(bar) => {
                if let Some((base, port)) = self.place(bar)? {
                    let value = self.qtest.read(port, base.wrapping_add(offset), into.len())?;
                    into.copy_from_slice(&value.to_le_bytes()[..into.len().min(8)]);
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, space: Space, offset: u64, bytes: &[u8]) -> Result<()> {
        match space {
            Space::Config => self.config_pass(offset, bytes),
            Space::Bar(bar) => {
                let Some((base, port)) = self.place(bar)? else { return Ok(()) };
                let mut value = [0; 8];
                value[..bytes.len()].copy_from_slice(bytes);
                self.qtest.write(port, base.wrapping_add(offset), bytes.len(), u64::from_le_bytes(value))
            }
        }
    }

    fn reset(&mut self) -> Result<()> {
        self.qmp.execute("system_reset", Some("RESET"))?;
        self.prepare_machine()
    }

    fn cut(&mut self) -> Result<()> {
        self.places = None;
        // Without memory, ports and bus mastership the device reaches nothing. Stopping waits for disk
        // requests that are under way.
        let quiet = self.config_write(SLOT, pci::COMMAND, 2, 0).and_then(|()| self.qmp.execute("stop", None));
        if quiet.is_err() {
            // A process that does not answer any more is ended.
            self.process.end();
        }
        quiet
    }

    fn sources(&self) -> Vec<RawFd> {
        let events = self.doorbell.events().iter().map(AsRawFd::as_raw_fd);
        [self.qtest.source()].into_iter().chain(events).collect()
    }

    fn interrupts(&mut self, source: Option<usize>, deliver: &mut dyn FnMut(Interrupt)) -> Result<()> {
        let changes = match source {
            Some(0) => true,
            None => self.qtest.has_changes(),
            Some(_) => false,
        };
        if changes {
            for Change { line, level } in self.qtest.changes()? {
                if line == LINE {
                    deliver(Interrupt::Line(level));
                }
            }
        }
        if let Some(vector) = source.and_then(|source| source.checked_sub(1))
            && let Some(event) = self.doorbell.events().get(vector)
            && event.take() > 0
        {
            let vector = vector as u32;
            deliver(if self.table_on { Interrupt::MsiX(vector) } else { Interrupt::Msi(vector) });
        }
        Ok(())
    }

    fn death(&mut self) -> Option<Error> {
        sys::death(&mut self.process.child).map(|what| Error::Qemu { what })
    }

    fn operations(&self) -> Operations {
        self.operations
    }
}

/// Keeps the beginning of a process's output.
fn listen(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut text, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            if text.len() < 64 << 10 {
                text.extend_from_slice(&piece[..count]);
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}
