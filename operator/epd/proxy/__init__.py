"""The proxy: one OpenAI-compatible endpoint in front of the engines of one EPDDeployment."""
