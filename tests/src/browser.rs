//! A browser of Debian, without a window. It is fetched as other software is, and runs from its unpacked tree.
//!
//! Tests drive it by the protocol of its developer tools, over two pipes: JSON objects that end in a zero byte.

use guardrail_vm::packages::{Fetch, Packages};
use guardrail_vm::{Cache, Error};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// The tree's name in the cache. Its number changes with what is in it.
const TREE: &str = "browser-1";
/// The package and its suite. It draws pages and has no window.
const PACKAGE: &str = "chromium-headless-shell";
const SUITE: &str = "bookworm";
/// The browser's folder in the tree, and the program that starts it.
const FOLDER: &str = "usr/lib/chromium";
const START: &str = "usr/lib/chromium/start";
/// What the packages have and the browser does without, below `usr`: drivers of graphics cards, and texts for people.
const UNUSED: [&str; 8] = [
    "lib/x86_64-linux-gnu/dri",
    "lib/x86_64-linux-gnu/libLLVM-15.so.1",
    "lib/x86_64-linux-gnu/libz3.so.4",
    "lib/chromium/libVkLayer_khronos_validation.so",
    "share/doc",
    "share/man",
    "share/locale",
    "sbin",
];
/// How the browser and its children are started: by the loader of the packages' own C library. The loader lies beside the
/// browser, which looks for its files where the running program is.
const SCRIPT: &str = "#!/bin/sh
here=$(dirname \"$0\")
top=$here/../../..
libraries=$top/lib/x86_64-linux-gnu:$top/usr/lib/x86_64-linux-gnu:$top/usr/lib/x86_64-linux-gnu/pulseaudio:$here
exec \"$here/loader\" --library-path \"$libraries\" \"$here/chromium-headless-shell\" \"$@\"
";
/// The longest time for an answer; the first one includes the browser's start.
const TIME: Duration = Duration::from_secs(60);

/// A browser that runs, with one page.
pub struct Browser {
    child: Child,
    input: Option<ChildStdin>,
    answers: Receiver<Value>,
    /// What it reported since the last look.
    events: Vec<Value>,
    last: u64,
    session: Option<String>,
    _folder: tempfile::TempDir,
}

/// The tree with the browser, fetched if the cache has none.
fn tree() -> Result<std::path::PathBuf, Error> {
    let packages = Packages::new(&Cache::open()?);
    packages.cache().ensure_tree(TREE, |folder| {
        let fetch = Fetch::WithDependencies { name: PACKAGE, suite: SUITE };
        packages.fill(folder, "the browser of tests", fetch)?;
        let failed = |error: std::io::Error| Error::BadValue(format!("the browser of tests: {error}"));
        for name in UNUSED {
            let path = folder.join("usr").join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        let loader = folder.join("lib64/ld-linux-x86-64.so.2").canonicalize().map_err(failed)?;
        fs::copy(loader, folder.join(FOLDER).join("loader")).map_err(failed)?;
        fs::write(folder.join(START), SCRIPT).map_err(failed)?;
        fs::set_permissions(folder.join(START), PermissionsExt::from_mode(0o755)).map_err(failed)
    })
}

/// The fonts of the packages, and no others: text is as wide on each machine.
fn fonts(tree: &Path, folder: &Path) -> std::io::Result<std::path::PathBuf> {
    let file = folder.join("fonts.conf");
    let (fonts, cache) = (tree.join("usr/share/fonts"), folder.join("fonts"));
    let text = format!(
        "<?xml version=\"1.0\"?>\n<!DOCTYPE fontconfig SYSTEM \"fonts.dtd\">\n<fontconfig><dir>{}</dir><cachedir>{}</cachedir></fontconfig>\n",
        fonts.display(),
        cache.display()
    );
    fs::write(&file, text)?;
    Ok(file)
}

impl Browser {
    /// Starts a browser that finds no host but 127.0.0.1. It reads only what tests serve, so that it needs no sandbox of its
    /// own, which a container may not permit.
    pub fn start() -> Result<Browser, Box<dyn std::error::Error>> {
        let tree = tree()?;
        let folder = tempfile::tempdir()?;
        let start = tree.join(START);
        // The tools read from descriptor 3 and write to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null"])
            .arg(&start)
            .args(["--no-sandbox", "--no-zygote", "--disable-gpu", "--remote-debugging-pipe"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--no-first-run"])
            .arg(format!("--browser-subprocess-path={}", start.display()))
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg("about:blank")
            .env("HOME", folder.path())
            .env("FONTCONFIG_FILE", fonts(&tree, folder.path())?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.path().join("log"))?)
            .spawn()?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        let (sender, answers) = sync_channel(10_000);
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while output.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                bytes.pop();
                let answer = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                if sender.send(answer).is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        let mut browser =
            Browser { child, input, answers, events: Vec::new(), last: 0, session: None, _folder: folder };
        let page = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attached = json!({ "targetId": page["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attached)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Log", "Runtime"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Calls a method of the protocol, and returns its result.
    pub fn call(&mut self, method: &str, parameters: Value) -> Result<Value, Box<dyn std::error::Error>> {
        self.last += 1;
        let mut call = json!({ "id": self.last, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let input = self.input.as_mut().ok_or("the browser has ended")?;
        input.write_all(format!("{call}\0").as_bytes())?;
        input.flush()?;
        let deadline = Instant::now() + TIME;
        loop {
            let answer = self.next(deadline).map_err(|why| format!("{method}: {why}"))?;
            if answer["id"] != self.last {
                self.events.push(answer);
            } else if let Some(error) = answer.get("error") {
                return Err(format!("{method}: {error}").into());
            } else {
                return Ok(answer["result"].clone());
            }
        }
    }

    fn next(&self, deadline: Instant) -> Result<Value, &'static str> {
        self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())).map_err(|error| {
            match error {
                RecvTimeoutError::Timeout => "the browser does not answer",
                RecvTimeoutError::Disconnected => "the browser has ended",
            }
        })
    }

    /// Opens a page, and waits until it is loaded.
    pub fn open(&mut self, address: &str) -> Result<(), Box<dyn std::error::Error>> {
        let is_load = |event: &Value| event["method"] == "Page.loadEventFired";
        let before = self.events.iter().filter(|event| is_load(event)).count();
        let opened = self.call("Page.navigate", json!({ "url": address }))?;
        if let Some(why) = opened["errorText"].as_str() {
            return Err(format!("{address}: {why}").into());
        }
        let deadline = Instant::now() + TIME;
        while self.events.iter().filter(|event| is_load(event)).count() == before {
            let event = self.next(deadline).map_err(|why| format!("{address}: {why}"))?;
            self.events.push(event);
        }
        Ok(())
    }

    /// Takes the events that came until now.
    pub fn events(&mut self) -> Vec<Value> {
        self.events.extend(self.answers.try_iter());
        std::mem::take(&mut self.events)
    }

    /// The value of an expression in the page. It runs beside the page, whose policy does not concern it.
    pub fn value(&mut self, expression: &str) -> Result<Value, Box<dyn std::error::Error>> {
        let result =
            self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true }))?;
        match result.get("exceptionDetails") {
            Some(why) => Err(format!("{expression}: {why}").into()),
            None => Ok(result["result"]["value"].clone()),
        }
    }

    /// Sets the size of the window in pixels, and the scheme, `light` or `dark`; `media` is empty, or `print`.
    pub fn look(&mut self, width: u32, scheme: &str, media: &str) -> Result<(), Box<dyn std::error::Error>> {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": features }))?;
        Ok(())
    }

    /// Presses a key: `Tab` or `Enter`.
    pub fn press(&mut self, key: &str) -> Result<(), Box<dyn std::error::Error>> {
        let (code, text) = if key == "Tab" { (9, "") } else { (13, "\r") };
        for kind in ["keyDown", "keyUp"] {
            let pressed = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
            });
            self.call("Input.dispatchKeyEvent", pressed)?;
        }
        Ok(())
    }

    /// A picture of the window as PNG.
    pub fn picture(&mut self) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }))?;
        decoded(picture["data"].as_str().unwrap_or_default()).ok_or_else(|| "the picture is no base64".into())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends when its input does; its children end with it.
        self.input = None;
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Decodes base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(bytes)
}
