-- Take every duty of the leader from its holder, as after the installation.
UPDATE awa.leaders AS leader
SET holder = NULL,
    epoch = DEFAULT,
    expires_at = DEFAULT
