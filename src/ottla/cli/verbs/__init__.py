"""One file for each verb of `ottla`; `ottla.cli.commands` lists them and imports a verb when it is called."""
