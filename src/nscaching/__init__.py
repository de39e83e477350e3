"""Knowledge-graph embedding with cache-based negative sampling."""
