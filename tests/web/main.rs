//! The web tools against real servers on loopback.
