/* The command `reel` of a wheel: its code is in the wheel's libreel.so. */
int reel_command_main(int argc, char **argv);

int main(int argc, char **argv) { return reel_command_main(argc, argv); }
