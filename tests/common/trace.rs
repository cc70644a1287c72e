//! With `AGENTOUTO_TRACE` everything that happens in these tests is traced into the file that it names, at the level
//! TRACE, the crates below included. CI looks through it for the keys of the tests, which must be nowhere.
#![cfg(any(feature = "http", feature = "mcp-client", feature = "web"))]

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};

use tracing::Level;

/// Traces from now on, if asked to.
pub(crate) fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if let Some(path) = std::env::var_os("AGENTOUTO_TRACE") {
            let file = Mutex::new(File::options().create(true).append(true).open(path).unwrap());
            tracing_subscriber::fmt().with_max_level(Level::TRACE).with_ansi(false).with_writer(file).init();
        }
    });
}

/// A trace in memory, of one test.
#[derive(Clone, Default)]
pub(crate) struct Trace(Arc<Mutex<Vec<u8>>>);

impl Trace {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Trace {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
