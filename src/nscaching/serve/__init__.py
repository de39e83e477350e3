"""The explorer: runs as pages for a browser and as JSON, read-only, over HTTP."""
