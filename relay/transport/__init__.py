"""Transport: MQTT connections, topics, presence, and the embedded broker."""
