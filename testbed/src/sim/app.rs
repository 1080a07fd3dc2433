//! Applications of a simulation: components, who feeds whom, rates and capacities.

/// What a component does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Tuples come from outside.
    Spout {
        /// Mean tuples per slot at each instance.
        rate: f64,
        /// Instances.
        instances: u32,
    },
    /// Tuples come from other components.
    Bolt {
        /// `mu`: tuples that an instance works on in a slot.
        capacity: u32,
        /// Instances; as many as the load asks for where `None`.
        instances: Option<u32>,
        /// Tuples that it emits to each successor for each that it worked on, in the mean.
        selectivity: f64,
    },
}

/// A component of an application.
#[derive(Debug, Clone, PartialEq)]
pub struct Component {
    /// Its name, unique in the application.
    pub id: String,
    /// What it does.
    pub kind: Kind,
    /// Indices of the components that feed it; empty for a spout. Each of them sends all its tuples here.
    pub inputs: Vec<usize>,
}

/// An application: a DAG whose components stand in topological order.
#[derive(Debug, Clone, PartialEq)]
pub struct App {
    /// Its name.
    pub name: String,
    /// Its components; inputs have lower indices.
    pub components: Vec<Component>,
}

impl App {
    /// Tuples per slot that each component takes in (a spout: that arrive), over all its instances.
    pub fn rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = Vec::with_capacity(self.components.len());
        for component in &self.components {
            let rate = match component.kind {
                Kind::Spout { rate, instances } => rate * f64::from(instances),
                Kind::Bolt { .. } => {
                    component.inputs.iter().map(|&from| self.emitted(from, rates[from])).sum()
                }
            };
            rates.push(rate);
        }
        rates
    }

    /// Tuples per slot that a component sends to each successor when it takes in `rate`.
    pub fn emitted(&self, component: usize, rate: f64) -> f64 {
        match self.components[component].kind {
            Kind::Spout { .. } => rate,
            Kind::Bolt { selectivity, .. } => rate * selectivity,
        }
    }

    /// Instances of each component: as written, else the fewest whose load is at most `load`.
    pub fn parallelism(&self, load: f64) -> Vec<u32> {
        /// So that a rate which fits exactly does not ask for an instance more.
        const SLACK: f64 = 1e-9;
        let instances = |(component, rate): (&Component, f64)| match component.kind {
            Kind::Spout { instances, .. } | Kind::Bolt { instances: Some(instances), .. } => instances,
            Kind::Bolt { capacity, .. } => {
                let exact = rate / (load * f64::from(capacity));
                ((exact - SLACK).ceil() as u32).max(1)
            }
        };
        self.components.iter().zip(self.rates()).map(instances).collect()
    }

    /// Indices of the components that a component feeds.
    pub fn successors(&self, component: usize) -> impl Iterator<Item = usize> + '_ {
        let all = self.components.iter().enumerate();
        all.filter(move |(_, next)| next.inputs.contains(&component)).map(|(index, _)| index)
    }

    /// Components on the longest way from a spout.
    pub fn depth(&self) -> usize {
        let mut depths: Vec<usize> = Vec::new();
        for component in &self.components {
            depths.push(1 + component.inputs.iter().map(|&from| depths[from]).max().unwrap_or(0));
        }
        depths.into_iter().max().unwrap_or(0)
    }
}
