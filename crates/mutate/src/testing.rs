//! Modules made from scratch, for tests.

/// A section to be written.
struct Section {
    name: String,
    kind: u32,
    flags: u64,
    bytes: Vec<u8>,
    info: u32,
}

/// Writes relocatable files.
pub(crate) struct Object {
    sections: Vec<Section>,
    symbols: Vec<(String, u8, u16, u64, u64)>,
    relocations: Vec<(u16, Vec<u8>)>,
}

pub(crate) const TEXT: u64 = 2 | 4;
pub(crate) const TABLE: u64 = 2;
pub(crate) const FUNCTION: u8 = 2;
pub(crate) const SECTION: u8 = 3;
/// A global symbol without a type: an import.
pub(crate) const IMPORT: u8 = 0x10;
pub(crate) const PC32: u32 = 2;
pub(crate) const PLT32: u32 = 4;

impl Object {
    /// An object with the parts that make a file a module: sections 1 `.modinfo` and 2
    /// `.gnu.linkonce.this_module`.
    pub(crate) fn module(name: &str) -> Object {
        let none = (String::new(), 0, 0, 0, 0);
        let mut object = Object { sections: Vec::new(), symbols: vec![none], relocations: Vec::new() };
        let info = format!("license=GPL\0depends=\0name={name}\0vermagic=6.1.0-9 SMP \0");
        object.section(".modinfo", TABLE, info.as_bytes());
        object.section(".gnu.linkonce.this_module", 3, &[0; 64]);
        object
    }

    pub(crate) fn section(&mut self, name: &str, flags: u64, bytes: &[u8]) -> u16 {
        self.sections.push(Section { name: name.into(), kind: 1, flags, bytes: bytes.to_vec(), info: 0 });
        self.sections.len() as u16
    }

    pub(crate) fn symbol(&mut self, name: &str, kind: u8, section: u16, value: u64, size: u64) -> u32 {
        self.symbols.push((name.into(), kind, section, value, size));
        self.symbols.len() as u32 - 1
    }

    pub(crate) fn relocate(&mut self, section: u16, offset: u64, kind: u32, symbol: u32, addend: i64) {
        if !self.relocations.iter().any(|(of, _)| *of == section) {
            self.relocations.push((section, Vec::new()));
        }
        let (_, entries) = self.relocations.iter_mut().find(|(of, _)| *of == section).unwrap();
        entries.extend(offset.to_le_bytes());
        entries.extend((u64::from(symbol) << 32 | u64::from(kind)).to_le_bytes());
        entries.extend(addend.to_le_bytes());
    }

    pub(crate) fn build(mut self) -> Vec<u8> {
        for (of, bytes) in std::mem::take(&mut self.relocations) {
            let name = format!(".rela{}", self.sections[usize::from(of) - 1].name);
            self.sections.push(Section { name, kind: 4, flags: 0, bytes, info: of.into() });
        }
        let (mut names, mut table) = (vec![0], Vec::new());
        for (name, kind, section, value, size) in std::mem::take(&mut self.symbols) {
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([kind, 0]);
            table.extend(section.to_le_bytes());
            table.extend(value.to_le_bytes());
            table.extend(size.to_le_bytes());
            names.extend(name.bytes().chain([0]));
        }
        let strings = self.section(".strtab", 0, &names);
        self.sections[usize::from(strings) - 1].kind = 3;
        let symbols = self.section(".symtab", 0, &table);
        self.sections[usize::from(symbols) - 1].kind = 2;
        let last = self.section(".shstrtab", 0, &[]);
        self.sections[usize::from(last) - 1].kind = 3;
        let (mut section_names, mut offsets) = (vec![0], Vec::new());
        for section in &self.sections {
            offsets.push(section_names.len() as u32);
            section_names.extend(section.name.bytes().chain([0]));
        }
        self.sections[usize::from(last) - 1].bytes = section_names;
        let (mut body, mut headers) = (vec![0; 64], vec![0; 64]);
        for (section, name) in self.sections.iter().zip(offsets) {
            body.resize(body.len().next_multiple_of(16), 0);
            let (link, entry) = match section.kind {
                2 => (strings, 24u64),
                4 => (symbols, 24),
                _ => (0, 0),
            };
            headers.extend(name.to_le_bytes());
            headers.extend(section.kind.to_le_bytes());
            for word in [section.flags, 0, body.len() as u64, section.bytes.len() as u64] {
                headers.extend(word.to_le_bytes());
            }
            headers.extend(u32::from(link).to_le_bytes());
            headers.extend(section.info.to_le_bytes());
            headers.extend(16u64.to_le_bytes());
            headers.extend(entry.to_le_bytes());
            body.extend_from_slice(&section.bytes);
        }
        body.resize(body.len().next_multiple_of(16), 0);
        let (at, count) = (body.len() as u64, headers.len() as u16 / 64);
        body[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        body[16..24].copy_from_slice(&[1, 0, 62, 0, 1, 0, 0, 0]);
        body[0x28..0x30].copy_from_slice(&at.to_le_bytes());
        body[0x34..0x36].copy_from_slice(&64u16.to_le_bytes());
        body[0x3a..0x3c].copy_from_slice(&64u16.to_le_bytes());
        body[0x3c..0x3e].copy_from_slice(&count.to_le_bytes());
        body[0x3e..0x40].copy_from_slice(&last.to_le_bytes());
        body.extend(headers);
        body
    }
}

/// One function `f` from pieces of code; each piece ends at a call of the named import, if it names one.
pub(crate) struct Function {
    code: Vec<u8>,
    calls: Vec<(usize, String)>,
}

impl Function {
    pub(crate) fn new() -> Function {
        Function { code: Vec::new(), calls: Vec::new() }
    }

    /// Appends bytes.
    pub(crate) fn code(mut self, bytes: &[u8]) -> Function {
        self.code.extend_from_slice(bytes);
        self
    }

    /// Appends a call of an import.
    pub(crate) fn call(mut self, name: &str) -> Function {
        self.code.push(0xe8);
        self.calls.push((self.code.len(), name.to_owned()));
        self.code.extend([0; 4]);
        self
    }

    /// A module with this function alone; section 3 is `.text`.
    pub(crate) fn object(self) -> Object {
        let mut object = Object::module("drv");
        let size = self.code.len() as u64;
        let text = object.section(".text", TEXT, &self.code);
        object.symbol("", SECTION, text, 0, 0);
        object.symbol("f", FUNCTION, text, 0, size);
        let mut known: Vec<(String, u32)> = Vec::new();
        for (at, name) in self.calls {
            let symbol = match known.iter().find(|(of, _)| *of == name) {
                Some((_, symbol)) => *symbol,
                None => {
                    let symbol = object.symbol(&name, IMPORT, 0, 0, 0);
                    known.push((name, symbol));
                    symbol
                }
            };
            object.relocate(text, at as u64, PLT32, symbol, -4);
        }
        object
    }

    pub(crate) fn module(self) -> Vec<u8> {
        self.object().build()
    }
}
