//! The results of clients, as text and for programs.

use crate::names::Names;
use crate::plan::Format;
use crate::render;
use guardrail_finding::{AccessInfo, CallStack, ContextInfo, Finding, Fingerprints, Frame, ObjectInfo};
use guardrail_host::{HostError, files};
use guardrail_report as report;
use guardrail_trace::client::{Cell, Fault, Report, Results, Table};
use guardrail_vm::prepare::Prepared;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The most rows of a table that are printed as text.
const ROWS: usize = 25;

/// The results of a run, with names instead of addresses.
pub struct NamedResults {
    /// The findings, in the form of the other commands' reports.
    pub report: report::Report,
    clients: Vec<Client>,
}

#[derive(Default)]
struct Client {
    name: String,
    tables: Vec<NamedTable>,
    notes: Vec<String>,
    /// Names and contents of the files.
    files: Vec<(String, Vec<u8>)>,
}

/// A table whose cells are text or numbers.
struct NamedTable {
    table: Table,
    cells: Vec<Vec<Value>>,
}

impl NamedResults {
    /// Replaces the addresses of all results by names.
    pub fn new(names: &Names, prepared: &Prepared, run: report::Run, reports: Vec<Report>) -> NamedResults {
        let clients =
            reports.iter().flat_map(|report| report.clients.iter().map(|one| client(names, report, one)));
        let clients = clients.collect();
        let results: Vec<Results> = reports.into_iter().flat_map(|report| report.clients).collect();
        let mut prints = Fingerprints::default();
        let faults =
            results.iter().flat_map(|result| result.findings.iter().map(|fault| (&result.client, fault)));
        let findings = faults.map(|(client, fault)| {
            let finding = finding(names, client, fault);
            Finding { id: prints.of(&finding), ..finding }
        });
        let findings = findings.collect();
        let report = report::Report {
            schema: report::SCHEMA.to_owned(),
            driver: prepared.plan.driver.name.clone(),
            kernel: prepared.kernel.release.clone(),
            tools: results.iter().map(|result| result.client.clone()).collect(),
            mode: "permissive".to_owned(),
            run: report::Run { workload: Some(prepared.workload.name.clone()), ..run },
            findings,
            ..report::Report::default()
        };
        NamedResults { report, clients }
    }

    /// True where a thread was stopped before it did harm.
    pub fn contained(&self) -> bool {
        self.report.findings.iter().any(|finding| finding.action.as_deref() == Some("contained"))
    }

    /// The number in the last row of a client's first table, by the name of its column.
    pub fn total(&self, client: &str, column: &str) -> Option<u64> {
        let named = self.clients.iter().find(|one| one.name == client)?.tables.first()?;
        let at = named.table.columns.iter().position(|name| name == column)?;
        named.cells.last()?.get(at)?.as_u64()
    }

    /// All results, in the requested format.
    pub fn text(&self, format: Format) -> Result<String, HostError> {
        match format {
            Format::Json => files::json(&self.json()),
            Format::Sarif => {
                let mut out = Vec::new();
                report::sarif::write(&self.report, &mut out).map_err(HostError::io("write to", "memory"))?;
                String::from_utf8(out).map_err(|e| HostError::Run(e.to_string()))
            }
            Format::Text => self.readable(),
        }
    }

    fn json(&self) -> Value {
        let mut all = serde_json::to_value(&self.report).unwrap_or_default();
        let table = |named: &NamedTable| json!({ "name": named.table.name, "columns": named.table.columns, "rows": named.cells });
        let client = |client: &Client| {
            json!({
                "name": client.name, "notes": client.notes,
                "tables": client.tables.iter().map(table).collect::<Vec<_>>(),
            })
        };
        all["clients"] = self.clients.iter().map(client).collect();
        all
    }

    fn readable(&self) -> Result<String, HostError> {
        let mut text = String::new();
        for client in &self.clients {
            text += &format!("{}\n", client.name);
            for note in &client.notes {
                text += &format!("  {note}\n");
            }
            for named in &client.tables {
                text += &format!("\n  {}\n", named.table.name);
                let mut rows = vec![named.table.columns.clone()];
                rows.extend(named.cells.iter().take(ROWS).map(|row| row.iter().map(plain).collect()));
                for line in guardrail_report::columns::table(&rows).lines() {
                    text += &format!("    {line}\n");
                }
                if named.cells.len() > ROWS {
                    text +=
                        &format!("    … {} more rows (--format json has all)\n", named.cells.len() - ROWS);
                }
            }
            text += "\n";
        }
        let mut out = text.into_bytes();
        report::text::write(&self.report, &mut out).map_err(HostError::io("write to", "memory"))?;
        String::from_utf8(out).map_err(|e| HostError::Run(e.to_string()))
    }

    /// Writes all results to a folder that is kept.
    pub fn write_files(&self, out: &Path) -> Result<(), HostError> {
        let file = out.join("profile.json");
        let text = self.text(Format::Json)?;
        fs::write(&file, text).map_err(HostError::io("write", file.display()))?;
        for (name, content) in self.clients.iter().flat_map(|client| &client.files) {
            let file = out.join(name);
            fs::write(&file, content).map_err(HostError::io("write", file.display()))?;
        }
        Ok(())
    }
}

fn client(names: &Names, report: &Report, result: &Results) -> Client {
    let mut client = Client { name: result.client.clone(), notes: result.notes.clone(), ..Client::default() };
    for table in &result.tables {
        let cells =
            || table.rows.iter().map(|row| row.iter().map(|cell| value(names, cell)).collect()).collect();
        let rendered = render::of(names, report, result, table, cells);
        client.notes.extend(rendered.notes);
        client.files.extend(rendered.files);
        client.tables.push(NamedTable { table: rendered.table, cells: rendered.cells });
    }
    client
}

fn value(names: &Names, cell: &Cell) -> Value {
    match cell {
        Cell::Text(text) => text.clone().into(),
        Cell::Count(count) => (*count).into(),
        Cell::Real(real) => (*real).into(),
        Cell::Function(addr) => names.function(*addr).into(),
        Cell::Code(addr) => place(names, *addr).into(),
        Cell::Stack(stack) => stack.iter().map(|&addr| names.function(addr)).collect(),
    }
}

/// `function+0x12 [module] file:line`.
fn place(names: &Names, addr: u64) -> String {
    names.frame(addr, 0).to_string()
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" < "),
        Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().unwrap_or(0.0)),
        other => other.to_string(),
    }
}

/// A client's fault as a finding of the report.
fn finding(names: &Names, client: &str, fault: &Fault) -> Finding {
    let place = names.frame(fault.pc, fault.when);
    let callers = |stack: &[u64]| stack.iter().map(|&addr| names.caller(addr, fault.when)).collect();
    let mut stack: Vec<Frame> = callers(&fault.stack);
    if let Some(first) = stack.first_mut() {
        *first = place.clone();
    }
    let frames = |stack: &[u64]| {
        (!stack.is_empty()).then(|| CallStack { stack: callers(stack), ..CallStack::default() })
    };
    let object = fault.object.as_ref().map(|object| ObjectInfo {
        address: format!("{:#x}", object.address),
        size: object.size,
        class: object.class.clone(),
        name: object.name.clone(),
        offset: fault.access.map(|(address, ..)| address.wrapping_sub(object.address) as i64),
        allocated: frames(&object.allocated),
        freed: frames(&object.freed),
        field: None,
    });
    let module = place.module.clone().unwrap_or_else(|| "vmlinux".to_owned());
    Finding {
        checker: client.to_owned(),
        kind: fault.kind.clone(),
        message: fault.message.clone(),
        module,
        function: place.function.clone(),
        offset: place.offset,
        location: place.source().cloned(),
        stack,
        context: ContextInfo {
            thread: fault.task.clone(),
            cpu: fault.cpu,
            level: fault.level.clone(),
            ..ContextInfo::default()
        },
        action: fault.contained.then(|| "contained".to_owned()),
        access: fault.access.map(|(address, size, store)| AccessInfo {
            what: if store { "write" } else { "read" }.to_owned(),
            address: format!("{address:#x}"),
            size,
        }),
        object,
        count: fault.count,
        ..Finding::default()
    }
}
