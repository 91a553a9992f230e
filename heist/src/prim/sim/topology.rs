//! How the cores of a machine lie to each other.

use std::fmt;

/// The most cores that a machine can have: as many as a runtime can have Ps.
pub(crate) const MOST: usize = 1024;

/// Cores, those that share a last-level cache, those that share memory. Cores
/// with consecutive numbers are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    cores: usize,
    /// Cores of a last-level cache.
    cache: usize,
    /// Cores of a node.
    node: usize,
}

/// How far a cache line has to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Distance {
    Own,
    Cache,
    Node,
    Remote,
}

impl Topology {
    /// A machine of `cores`, of a shape by name: `flat` (one cache), `caches` (8
    /// cores a cache), `numa` (8 a cache, 64 a node), or `cache=N,node=M`.
    pub(crate) fn new(cores: usize, shape: &str) -> Result<Topology, TopologyError> {
        if cores == 0 || cores > MOST {
            return Err(TopologyError::Cores(cores));
        }
        let (cache, node) = match shape {
            "flat" => (cores, cores),
            "caches" => (8, cores),
            "numa" => (8, 64),
            _ => Self::parse(cores, shape)?,
        };
        let (cache, node) = (cache.min(cores), node.min(cores));
        if cache == 0 || node == 0 || node % cache != 0 && node != cores {
            return Err(TopologyError::Shape(shape.to_owned()));
        }
        Ok(Topology { cores, cache, node })
    }

    fn parse(cores: usize, shape: &str) -> Result<(usize, usize), TopologyError> {
        let unknown = || TopologyError::Shape(shape.to_owned());
        let (mut cache, mut node) = (None, None);
        for part in shape.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let value: usize = value.parse().map_err(|_| unknown())?;
            let field = match key {
                "cache" => &mut cache,
                "node" => &mut node,
                _ => return Err(unknown()),
            };
            if value == 0 || field.replace(value).is_some() {
                return Err(unknown());
            }
        }
        let node = node.unwrap_or(cores);
        let cache = cache.unwrap_or(node);
        if cache > node || node % cache != 0 && node != cores {
            return Err(unknown());
        }
        Ok((cache, node))
    }

    pub(crate) fn cores(&self) -> usize {
        self.cores
    }

    pub(super) fn distance(&self, a: usize, b: usize) -> Distance {
        if a == b {
            Distance::Own
        } else if a / self.cache == b / self.cache {
            Distance::Cache
        } else if a / self.node == b / self.node {
            Distance::Node
        } else {
            Distance::Remote
        }
    }

    /// The cache and the node of each core.
    pub(super) fn places(&self) -> Vec<(usize, usize)> {
        (0..self.cores).map(|core| (core / self.cache, core / self.node)).collect()
    }

    /// The cores near one, widest last: its cache, its node, all.
    pub(super) fn around(&self, core: usize) -> [std::ops::Range<usize>; 3] {
        let range = |size: usize| {
            let first = core / size * size;
            first..(first + size).min(self.cores)
        };
        [range(self.cache), range(self.node), 0..self.cores]
    }
}

/// A machine that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TopologyError {
    Cores(usize),
    Shape(String),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyError::Cores(n) => {
                write!(f, "a machine has 1 to {MOST} cores, not {n}")
            }
            TopologyError::Shape(shape) => write!(
                f,
                "'{shape}' is no topology; there are: flat (one cache), caches (8 cores a \
                 cache), numa (8 a cache, 64 a node), or cache=N,node=M with M a multiple of N"
            ),
        }
    }
}

impl std::error::Error for TopologyError {}
