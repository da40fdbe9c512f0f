"""The bus: messages between agents over MQTT, remembered in a ledger until they have arrived."""
