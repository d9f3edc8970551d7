"""The `EPDDeployment` API: its types, its names, and the generator of its CustomResourceDefinition."""
