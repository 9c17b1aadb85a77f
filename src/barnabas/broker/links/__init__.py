"""Links to other clusters: this broker copies the topics that it leads and that a link mirrors."""
