//! Reads the text of a program.

use super::cursor::{Cursor, Result};
use super::{Argument, Earlier, Form, MEMORY, MEMORY_AT, Operation, calls, values};

/// The most calls of a program, and the most arguments of one.
const MOST_CALLS: usize = 10_000;
const MOST_ARGUMENTS: usize = 6;
/// How often a call may be made again (`rerun`).
const MOST_TIMES: u64 = 1000;
/// The highest number of a result.
const LAST_RESULT: u64 = 9999;
/// How deep groups and pointers may be.
const DEEPEST: u32 = 16;
/// The most bytes that all values of a program have. The guest gets two digits for each.
const MOST_BYTES: usize = 4 << 20;
/// The addresses in the text at which the memory begins; the first is of programs before 2025.
const BASES: [u64; 2] = [0x7f00_0000_0000, MEMORY_AT];
/// The size of a pointer.
const POINTER: usize = 8;

const TOO_LARGE: &str = "the value does not fit into the memory of programs";
/// What a number without a size means.
const SIZELESS: &str = "the size of this value is known to syzkaller's descriptions alone; write its bytes as \"…\", or \
                        the number with its size in bytes, as in 0x1:4";

/// Reads a program: a call a line, and lines that are empty or comments.
pub(super) fn program(text: &str) -> Result<Vec<Operation>> {
    let mut reader = Reader::default();
    let mut calls = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        let mut cursor = Cursor::new(line, number + 1);
        if cursor.ends() || cursor.peek() == Some('#') {
            continue;
        }
        calls += 1;
        if calls > MOST_CALLS {
            return Err(cursor.wrong(format!("a program may have {MOST_CALLS} calls")));
        }
        reader.call(&mut cursor)?;
    }
    match calls {
        0 => Err(Cursor::new("", 1).wrong("the program makes no call")),
        _ => Ok(reader.operations),
    }
}

#[derive(Default)]
struct Reader {
    operations: Vec<Operation>,
    /// The results that calls have so far.
    results: Vec<u32>,
    /// The bytes that are written.
    bytes: usize,
}

/// A value in memory, with the places of the results in it.
#[derive(Default)]
struct Value {
    bytes: Vec<u8>,
    results: Vec<(usize, Form, Earlier)>,
}

impl Reader {
    /// `[rN = ]name[$variant](arguments)[ (properties)]`.
    fn call(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        let mut start = *cursor;
        let mut name = cursor.word();
        let mut result = None;
        if cursor.takes("=") {
            result = Some(
                number_of_result(name).ok_or_else(|| start.wrong("a result is named r0, r1, and so on"))?,
            );
            cursor.peek();
            start = *cursor;
            name = cursor.word();
        }
        let call = calls::find(name).map_err(|why| start.wrong(why))?;
        cursor.take("(")?;
        let arguments = self.arguments(cursor, name)?;
        let times = times(cursor)?;
        if !cursor.ends() && cursor.peek() != Some('#') {
            return Err(cursor.wrong("nothing may follow the call in its line"));
        }
        self.operations.push(Operation::Call { call, name: name.to_owned(), arguments, result, times });
        self.results.extend(result);
        Ok(())
    }

    fn arguments(&mut self, cursor: &mut Cursor<'_>, name: &str) -> Result<Vec<Argument>> {
        let mut arguments = Vec::new();
        if cursor.takes(")") {
            return Ok(arguments);
        }
        loop {
            if arguments.len() == MOST_ARGUMENTS {
                return Err(cursor.wrong(format!("a system call has at most {MOST_ARGUMENTS} arguments")));
            }
            let is_path = calls::path_of(name) == Some(arguments.len());
            arguments.push(self.argument(cursor, is_path)?);
            if !cursor.goes_on(")")? {
                return Ok(arguments);
            }
        }
    }

    fn argument(&mut self, cursor: &mut Cursor<'_>, is_path: bool) -> Result<Argument> {
        match cursor.peek() {
            Some('&') => {
                let start = *cursor;
                let (at, has_value) = self.pointer(cursor, DEEPEST)?;
                if is_path && !has_value {
                    let why = "the path is known to syzkaller's descriptions alone; write it, as in &(0x7f0000000000)='/dev/x\\x00'";
                    return Err(start.wrong(why));
                }
                Ok(Argument::Number(at))
            }
            Some('r') => Ok(Argument::Result(self.earlier(cursor)?)),
            Some('n') => cursor.take("nil").map(|()| Argument::Number(0)),
            Some('0'..='9') => Ok(Argument::Number(cursor.number()?)),
            _ => Err(cursor
                .wrong("an argument is a number, a result, nil, or a pointer; others are not understood")),
        }
    }

    /// `&(address[/size])[=value]`. Returns the address in the guest, and whether there is a value.
    fn pointer(&mut self, cursor: &mut Cursor<'_>, depth: u32) -> Result<(u64, bool)> {
        let start = *cursor;
        cursor.take("&")?;
        if !cursor.takes("(") {
            return Err(start.wrong(
                "the address of this pointer is left to syzkaller; write one, as in &(0x7f0000000000)",
            ));
        }
        let place = *cursor;
        let address = cursor.number()?;
        let offset =
            BASES.iter().filter_map(|base| address.checked_sub(*base)).find(|offset| *offset < MEMORY);
        let Some(offset) = offset else {
            return Err(place.wrong(format!(
                "pointers of a program lead to {} MiB from {:#x} or {:#x} on",
                MEMORY >> 20,
                BASES[0],
                BASES[1]
            )));
        };
        if cursor.takes("/") {
            cursor.number()?;
        }
        cursor.take(")")?;
        let at = MEMORY_AT + offset;
        if !cursor.takes("=") {
            return Ok((at, false));
        }
        let Value { bytes, results } = self.pointed_to(cursor, depth)?;
        self.bytes = self.bytes.saturating_add(bytes.len());
        if bytes.len() as u64 > MEMORY - offset {
            return Err(place.wrong(TOO_LARGE));
        }
        if self.bytes > MOST_BYTES {
            return Err(
                place.wrong(format!("the values of a program may have {} MiB together", MOST_BYTES >> 20))
            );
        }
        if !bytes.is_empty() {
            self.operations.push(Operation::Write { at, bytes });
        }
        for (place, form, result) in results {
            self.operations.push(Operation::Store { at: at + place as u64, form, result });
        }
        Ok((at, true))
    }

    /// What a pointer leads to: data, a group, or nothing.
    fn pointed_to(&mut self, cursor: &mut Cursor<'_>, depth: u32) -> Result<Value> {
        if cursor.takes("nil") {
            return Ok(Value::default());
        }
        let mut value = Value::default();
        // The members of ANY follow one another; those of other groups have the places that a C compiler gives them.
        let packed = cursor.takes("ANY=");
        self.member(cursor, &mut value, packed, depth)?;
        Ok(value)
    }

    /// Adds a member of a group to the group's value.
    fn member(&mut self, cursor: &mut Cursor<'_>, value: &mut Value, packed: bool, depth: u32) -> Result<()> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(cursor.wrong(format!("groups and pointers may be {DEEPEST} deep")));
        };
        let start = {
            cursor.peek();
            *cursor
        };
        match cursor.peek() {
            Some('"' | '\'') => value.bytes.extend(values::data(cursor)?),
            Some('{') => self.group(cursor, ("{", "}"), value, packed, depth)?,
            Some('[') => self.group(cursor, ("[", "]"), value, packed, depth)?,
            Some('&') => self.address(cursor, value, packed, depth)?,
            Some('@') => self.named(cursor, value, packed, depth)?,
            _ if cursor.takes("nil") => {
                aligned(&start, value, packed, POINTER)?;
                value.bytes.extend([0; POINTER]);
            }
            Some('0'..='9' | 'r') => self.sized(cursor, value, packed)?,
            Some('<' | 'A') => return Err(start.wrong(SIZELESS)),
            _ => return Err(start.wrong("expected data, a group, or a pointer")),
        }
        match value.bytes.len() as u64 > MEMORY {
            true => Err(start.wrong(TOO_LARGE)),
            false => Ok(()),
        }
    }

    fn group(
        &mut self,
        cursor: &mut Cursor<'_>,
        (begin, end): (&str, &str),
        value: &mut Value,
        packed: bool,
        depth: u32,
    ) -> Result<()> {
        cursor.take(begin)?;
        if cursor.takes(end) {
            return Ok(());
        }
        loop {
            self.member(cursor, value, packed, depth)?;
            if !cursor.goes_on(end)? {
                return Ok(());
            }
        }
    }

    /// A pointer as a member. What it leads to is written on its own.
    fn address(
        &mut self,
        cursor: &mut Cursor<'_>,
        value: &mut Value,
        packed: bool,
        depth: u32,
    ) -> Result<()> {
        aligned(cursor, value, packed, POINTER)?;
        let (at, _) = self.pointer(cursor, depth)?;
        value.bytes.extend(at.to_le_bytes());
        Ok(())
    }

    /// `@NAME=value`, of which the members of ANY say their size.
    fn named(&mut self, cursor: &mut Cursor<'_>, value: &mut Value, packed: bool, depth: u32) -> Result<()> {
        let start = *cursor;
        cursor.take("@")?;
        let name = cursor.word();
        match (name, values::form(name)) {
            ("ANYBLOB", _) => {
                cursor.take("=")?;
                value.bytes.extend(values::data(cursor)?);
            }
            ("ANYPTR" | "ANYPTR64", _) => {
                cursor.take("=")?;
                self.address(cursor, value, packed, depth)?;
            }
            (_, Some(form)) => {
                cursor.take("=")?;
                self.result(cursor, form, value)?;
            }
            _ => {
                let why = format!(
                    "the size of '@{name}' is known to syzkaller's descriptions alone; write the bytes as \"…\""
                );
                return Err(start.wrong(why));
            }
        }
        Ok(())
    }

    /// The result of a call, or a number in its place, in a form.
    fn result(&mut self, cursor: &mut Cursor<'_>, form: Form, value: &mut Value) -> Result<()> {
        let place = value.bytes.len();
        if cursor.peek() == Some('r') {
            let result = self.earlier(cursor)?;
            value.results.push((place, form, result));
            value.bytes.resize(place + form.size(), 0);
            return Ok(());
        }
        let start = *cursor;
        let number = cursor.number()?;
        match form {
            Form::Bytes(count) => value.bytes.extend(&number.to_le_bytes()[..usize::from(count)]),
            _ => return Err(start.wrong("only the result of a call is written as text")),
        }
        Ok(())
    }

    /// `NUMBER:SIZE` or `rN:SIZE`. The size is an addition of ours to the text.
    fn sized(&mut self, cursor: &mut Cursor<'_>, value: &mut Value, packed: bool) -> Result<()> {
        let start = *cursor;
        let (mut number, mut result) = (0, None);
        if cursor.peek() == Some('r') {
            result = Some(self.earlier(cursor)?);
        } else {
            number = cursor.number()?;
        }
        if !cursor.takes(":") {
            return Err(start.wrong(SIZELESS));
        }
        let place = *cursor;
        let count = match cursor.number()? {
            size @ (1 | 2 | 4 | 8) => size as u8,
            _ => return Err(place.wrong("the size of a number is 1, 2, 4 or 8 bytes")),
        };
        let size = usize::from(count);
        aligned(&start, value, packed, size)?;
        let bytes = number.to_le_bytes();
        // syzkaller writes negative numbers with 64 bits, whatever their size.
        let rest = &bytes[size..];
        if rest.iter().any(|byte| *byte != 0) && rest.iter().any(|byte| *byte != 0xff) {
            return Err(start.wrong(format!("the number has more than {size} bytes")));
        }
        value.results.extend(result.map(|result| (value.bytes.len(), Form::Bytes(count), result)));
        value.bytes.extend(&bytes[..size]);
        Ok(())
    }

    /// `rN[/divisor][+more]`: the result of a call before.
    fn earlier(&mut self, cursor: &mut Cursor<'_>) -> Result<Earlier> {
        let start = *cursor;
        let name = cursor.word();
        let number = number_of_result(name)
            .ok_or_else(|| start.wrong(format!("'{name}' is no result, such as r0")))?;
        if !self.results.contains(&number) {
            return Err(start.wrong(format!("no call before has the result {name}")));
        }
        let mut earlier = Earlier { number, divisor: 1, more: 0 };
        if cursor.takes("/") {
            let place = *cursor;
            earlier.divisor = cursor.number()?;
            if earlier.divisor == 0 {
                return Err(place.wrong("a result cannot be divided by 0"));
            }
        }
        if cursor.takes("+") {
            earlier.more = cursor.number()?;
        }
        Ok(earlier)
    }
}

/// Refuses a member of a size where a C compiler would leave room before it, unless the group is packed.
fn aligned(place: &Cursor<'_>, value: &Value, packed: bool, size: usize) -> Result<()> {
    match packed || value.bytes.len().is_multiple_of(size) {
        true => Ok(()),
        false => Err(place.wrong(format!(
            "this member of {size} bytes would be at byte {} of its group; add the bytes before it, or write ANY=[…]",
            value.bytes.len()
        ))),
    }
}

/// The properties of a call: how often it is made.
fn times(cursor: &mut Cursor<'_>) -> Result<u64> {
    let mut times = 1;
    if !cursor.takes("(") {
        return Ok(times);
    }
    loop {
        cursor.peek();
        let start = *cursor;
        match cursor.word() {
            "rerun" => {
                cursor.take(":")?;
                let place = *cursor;
                times = match cursor.number()? {
                    more if more < MOST_TIMES => more + 1,
                    _ => return Err(place.wrong(format!("a call is made at most {MOST_TIMES} times"))),
                };
            }
            name => {
                let why = format!("the property '{name}' of a call is not understood; only rerun is");
                return Err(start.wrong(why));
            }
        }
        if !cursor.goes_on(")")? {
            return Ok(times);
        }
    }
}

fn number_of_result(name: &str) -> Option<u32> {
    let number: u64 = name.strip_prefix('r')?.parse().ok()?;
    u32::try_from(number).ok().filter(|_| number <= LAST_RESULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        program(text).err().map_or_else(String::new, |wrong| wrong.to_string())
    }

    #[test]
    fn what_is_understood_is_read() {
        for good in [
            "close(0x3)",
            "  close ( 0x3 )  # with a comment",
            "sync()",
            "mmap(&(0x7f0000000000/0x3000)=nil, 0x3000, 0x3, 0x32, 0xffffffffffffffff, 0x0)",
            "r0 = open(&(0x7f0000000000)='./a\\x00', 0x0, 0x0)\nread(r0, &(0x7f0000000040)=\"\"/4096, 0x1000)",
            "r9 = dup(0x1)\nclose(r9/2+0x1) (rerun: 4)",
            "writev(0x1, &(0x7f0000000000)=[{&(0x7f0000000100)=\"01\", \"0100000000000000\"}, {nil, \"0000000000000000\"}], 0x2)",
            "r0 = syz_open_dev$x(&(0x7f0000000000)='/dev/x#\\x00', 0x1, 0x0)\n\
             ioctl$y(r0, 0x1, &(0x200000000000)={[\"01\", \"02\"], {}, @ANYRESHEX=r0, @ANYRES16=0x7})",
            "ioctl(0x3, 0x1, &(0x7f0000000000)=ANY=[@ANYBLOB=\"01\", @ANYPTR=&(0x7f0000000080)=ANY=[@ANYBLOB=\"02\"]])",
        ] {
            assert_eq!(why(good), "", "{good}");
        }
    }

    #[test]
    fn numbers_have_the_size_that_the_text_gives() {
        let text =
            "r0 = dup(0x1)\nclose(&(0x7f0000000000)={0x1:1, 0xffffffffffffffff:1, 0x302:2, r0:4, 0x7:8})";
        let operations = program(text).unwrap();
        let bytes = vec![1, 255, 2, 3, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(operations[1], Operation::Write { at: MEMORY_AT, bytes });
        let result = Earlier { number: 0, divisor: 1, more: 0 };
        assert_eq!(operations[2], Operation::Store { at: MEMORY_AT + 4, form: Form::Bytes(4), result });
    }

    #[test]
    fn what_only_descriptions_know_is_refused_with_its_place() {
        for (bad, place, words) in [
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)=0x5)", "1:37", "size of this value"),
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)={0x1, 0x2})", "1:38", "size of this value"),
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)={0x1:1, 0x2:4})", "1:45", "at byte 1 of its group"),
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)=0x100:1)", "1:37", "more than 1 bytes"),
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)=0x1:3)", "1:41", "1, 2, 4 or 8"),
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)={<r1=>0x0})", "1:38", "size of this value"),
            ("ioctl$X(0x3, 0x1, &(0x7f0000000000)=@abs)", "1:37", "size of '@abs'"),
            ("ioctl$X(0x3, 0x1, &AUTO=\"00\")", "1:19", "address of this pointer"),
            ("openat$kvm(0xffffffffffffff9c, &(0x7f0000000000), 0x0)", "1:32", "the path is known"),
            (
                "ioctl(0x3, 0x1, &(0x7f0000000000)={\"01\", &(0x7f0000000080)})",
                "1:42",
                "at byte 1 of its group",
            ),
            ("\nclose(0x3) (async)", "2:13", "'async'"),
            ("close(0x3) (fail_nth: 1)", "1:13", "'fail_nth'"),
            ("syz_usb_connect(0x0)", "1:1", "syzkaller's executor"),
        ] {
            let why = why(bad);
            assert!(why.starts_with(place) && why.contains(words), "{bad}: {why}");
        }
    }

    #[test]
    fn bad_input_is_refused() {
        for bad in [
            "",
            "#",
            "close",
            "close(",
            "close()x",
            "close(0x3) close(0x3)",
            "= close(0x3)",
            "r = close(0x3)",
            "r10000 = close(0x3)",
            "x0 = close(0x3)",
            "close(r0)",
            "r0 = close(r0)",
            "close(0x)",
            "close(-1)",
            "close(,)",
            "close(\"01\")",
            "close(@x)",
            "close({})",
            "close(AUTO)",
            "close(1, 2, 3, 4, 5, 6, 7)",
            "nobody(0x1)",
            "close(&)",
            "close(&())",
            "close(&(0x0))",
            "close(&(0x7effffffffff))",
            "close(&(0x7f0001000000))",
            "close(&(0x7f0000000000)",
            "close(&(0x7f0000000000)=)",
            "close(&(0x7f0000000000)={)",
            "close(&(0x7f0000000000)={\"01\"]",
            "close(&(0x7f0000ffffff)=\"0102\")",
            "close(&(0x7f0000000000)=\"\"/0x1000001)",
            "close(&(0x7f0000000000)=[\"\"/0x900000, \"\"/0x900000])",
            "close(&(0x7f0000000000)={@ANYRESDEC=0x1})",
            "close(0x3) (rerun)",
            "close(0x3) (rerun: 1000)",
            "close(0x3) ()",
            "r0 = dup(0x1)\nclose(r0/0)",
            "é(0x1)",
            "close(0x3é)",
        ] {
            assert!(program(bad).is_err(), "{bad}");
        }
        let deep = format!("close(&(0x7f0000000000)={}", "[".repeat(100_000));
        assert!(why(&deep).contains("may be 16 deep"));
        let pointers = format!("close({}", "&(0x7f0000000000)={".repeat(100_000));
        assert!(why(&pointers).contains("may be 16 deep"));
        assert!(why(&"close(0x3)\n".repeat(MOST_CALLS + 1)).starts_with("10001:1: a program may have"));
        let large = "read(0x0, &(0x7f0000000000)=\"\"/0x100000, 0x0)\n".repeat(5);
        assert!(why(&large).starts_with("5:13: the values of a program may have 4 MiB"), "{}", why(&large));
        let close = "close(&(0x7f0000fffff0)=\"\"/0x11)";
        assert!(why(close).starts_with("1:9: the value does not fit"), "{}", why(close));
    }
}
