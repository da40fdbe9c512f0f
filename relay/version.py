"""The version of relay. The wheel takes it from here: to read it from the installed package takes 40 ms."""

VERSION = "0.2.0"
